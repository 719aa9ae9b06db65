"""What a worker asks of the Redis servers of its broker and its results, and what of it their users
may not do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import Celery
from celery.backends.redis import RedisBackend
from kombu.utils.encoding import bytes_to_str

from celery_reliable.app import Reliable
from celery_reliable.broker import UNACKED_LIST_PREFIX, UNACKED_PREFIX
from celery_reliable.ledger import Command, connect, denied, on_key
from celery_reliable.model import Finding
from celery_reliable.settings import check_rights

__all__ = ["missing_rights"]

#: What kombu, unacked hashes and the sweeper do with each kind of key.
_QUEUE = ("BRPOP", "LINDEX", "LLEN", "LPUSH", "RPOP", "RPUSH")
_UNACKED = ("HDEL", "HEXISTS", "HGET", "HKEYS", "HLEN", "HMGET", "HSET", "HSTRLEN")
_SET = ("SADD", "SMEMBERS", "SREM")
_RESULT = ("GET", "PUBLISH", "SET", "SETEX")
#: The end of a key that stands for all unacked hashes, or all tasks.
_SOME = "rights"


def missing_rights(reliable: Reliable) -> Iterator[Finding]:
    """Yield what a worker does at a Redis that is its broker or its result backend, and may not do
    there; nothing of a server that is away.
    """
    app, conf = reliable.app, reliable.app.conf
    if reliable.is_redis_broker:
        url, options = reliable.broker_url, conf.broker_transport_options or {}
        there = connect(url, transport_options=options, ssl=conf.broker_use_ssl)
        client = there.client()
        try:
            missing = denied(client, _of_broker(app, options, reliable.config.namespace))
            yield from check_rights(f"The broker's Redis at {there.shown}", missing)
        finally:
            client.close()
    backend: Any = app.backend
    if type(backend) is RedisBackend:
        key = backend.get_key_for_task(_SOME)
        missing = denied(backend.client, on_key(bytes_to_str(key), *_RESULT))
        yield from check_rights("The result backend's Redis", missing)


def _of_broker(app: Celery, options: Any, namespace: str) -> Iterator[Command]:
    prefix = options.get("global_keyprefix", "")
    for name, queue in app.amqp.queues.items():
        yield from on_key(prefix + name, *_QUEUE)
        if queue.exchange is not None and queue.exchange.name:
            yield from on_key(f"{prefix}_kombu.binding.{queue.exchange.name}", "SADD", "SMEMBERS")
    yield from on_key(f"{prefix}{UNACKED_PREFIX}{_SOME}", *_UNACKED)
    yield from on_key(f"{prefix}{UNACKED_LIST_PREFIX}{namespace}", *_SET)
    # Of workers without the package; it is only looked at.
    yield from on_key(prefix + options.get("unacked_key", "unacked"), "HSCAN")
