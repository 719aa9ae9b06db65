"""A mark on the queues' server, which shows that the server was replaced or emptied."""

from __future__ import annotations

import secrets
from typing import Any

import redis
from kombu.utils.encoding import bytes_to_str

__all__ = ["forget_server", "server_seen"]

#: The beginning of the mark's key.  A flush, or a restart without its data, removes the mark.
_MARK = "celery-reliable.mark:"


def server_seen(channel: Any, namespace: str) -> str:
    """Return a name for the server of *channel* that changes when it may have lost messages; empty
    if its user may not ask for that.

    Raises redis-py's errors when it is away.
    """
    client, key = _client(channel), _key(channel, namespace)
    try:
        client.set(key, secrets.token_hex(8), nx=True)
        mark = bytes_to_str(client.get(key) or b"")
        run_id = str(client.info("server").get("run_id", ""))
    except redis.ResponseError:
        return ""
    return f"{run_id} {mark}"


def forget_server(channel: Any, namespace: str) -> None:
    """Remove the mark."""
    _client(channel).delete(_key(channel, namespace))


def _client(channel: Any) -> redis.Redis:
    # kombu's client adds its prefix to the keys of some commands only, so this is a plain one.
    return redis.Redis(connection_pool=channel.pool)


def _key(channel: Any, namespace: str) -> str:
    return f"{channel.global_keyprefix}{_MARK}{namespace}"
