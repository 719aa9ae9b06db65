"""What tells a queue server from another one, or from the same after a restart or a flush."""

from __future__ import annotations

import secrets
from typing import Any

import redis
from kombu.utils.encoding import bytes_to_str

__all__ = ["forget_server", "server_seen"]

#: What is put on the server to see whether it is still there.
_MARK = "celery-reliable.mark:"


def server_seen(channel: Any, namespace: str) -> str:
    """Return a name for the server of *channel* that changes when it may have lost messages; empty
    when it does not tell, as to a user who may not ask.

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
    """Take away what was put there."""
    _client(channel).delete(_key(channel, namespace))


def _client(channel: Any) -> redis.Redis:
    # Of our own: kombu's prefixes some commands' keys, and not others'.
    return redis.Redis(connection_pool=channel.pool)


def _key(channel: Any, namespace: str) -> str:
    return f"{channel.global_keyprefix}{_MARK}{namespace}"
