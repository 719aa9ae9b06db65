"""redis-py's connections, whose sockets are watched and whose replies are read one by one."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

import redis

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = [
    "ask",
    "has_something_to_read",
    "keep_connection",
    "kept_connection",
    "put_aside",
    "reply",
    "send",
    "socket_of",
    "turn_into",
]

_CONNECTION = "redis.connection:Connection"


@relies_on(Used(_CONNECTION, "_sock"), part=Part.WORKER)
def socket_of(connection: Any) -> Any:
    """Return the socket of a connection; None while it is not connected.

    Reads ``Connection._sock``: redis-py has no public way to it.  Checked on redis-py 6.4.0 and
    8.1.0. Without it a worker does not notice that its connection was cut, and is taken for dead.
    """
    return connection._sock


@relies_on(
    Used(_CONNECTION, "_sock"),
    Used(_CONNECTION, "_parser"),
    Name("redis._parsers.base:BaseParser.on_disconnect"),
    Name(f"{_CONNECTION}.read_response", takes=("disable_decoding",)),
    part=Part.WORKER,
)
def put_aside(connection: Any) -> Any:
    """Take the socket from a connection without closing it, and return it; None if there is
    none.

    Sets ``Connection._sock`` and tells ``Connection._parser`` so: redis-py can only close it.
    Checked on redis-py 6.4.0 and 8.1.0.  Without it a reply that is late closes the connection by
    which a worker is known to live, and a living worker is declared dead.
    """
    sock = connection._sock
    if sock is not None:
        connection._sock = None
        connection._parser.on_disconnect()
    return sock


def keep_connection(client: redis.Redis, connection: Any) -> None:
    """Let a client send all that it sends over one connection.

    Redis-py's own client of one connection connects as it is made, and is not made without a
    server.
    """
    client.connection = connection


def kept_connection(client: Any) -> Any:
    """Return the connection that `keep_connection` has set."""
    return client.connection


def turn_into(connection: Any, ours: type[Any]) -> Any:
    """Put *ours* before the class of a connection that is in no pool, and return the connection.

    Which class it has depends on how the server is reached, and pools of all kinds make it.
    """
    own = type(connection)
    connection.__class__ = type(own.__name__, (ours, own), {})
    return connection


def has_something_to_read(connection: Any, seconds: float = 0) -> bool:
    """Whether a connection has something to read within so many *seconds*: a reply that is awaited,
    or else the server has closed it.

    ``Connection.can_read`` costs four calls of the system and an exception.  Of a plain socket the
    system can tell in one; one with TLS may have read more than it has given, and those of
    greenlets are waited for otherwise.
    """
    sock = socket_of(connection)
    if sock is None:
        return False
    if type(sock).__module__ == "socket":
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(round(seconds * 1000)))
    return bool(connection.can_read(seconds))


def ask(connection: Any, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Send commands in one go, and return the reply to each. An error reply is an exception
    object.  (A pipeline of redis-py's takes a connection of the pool each time, and raises the
    first error.)
    """
    send(connection, commands)
    return [reply(connection) for _ in commands]


@relies_on(
    Used(_CONNECTION, "encoder"),
    Name(f"{_CONNECTION}.send_packed_command", takes=("command",)),
    part=Part.WORKER,
)
def send(connection: Any, commands: Sequence[Sequence[Any]]) -> None:
    """Send commands in one go, whose replies are read later, one by one.

    Calls ``Connection.send_packed_command``, as redis-py's pipelines do, and reads ``encoder``.
    Checked on redis-py 6.4.0 and 8.1.0.  Without it messages can neither be taken from queues nor
    claimed as they are taken, and nothing can be sent behind a command that waits.
    """
    encoder = connection.encoder
    # As one: what is sent in parts may be answered in parts, and to be woken twice takes longer.
    connection.send_packed_command([b"".join([_packed(one, encoder) for one in commands])])


def _packed(command: Sequence[Any], encoder: Any) -> bytes:
    """Return a command as it is sent.  redis-py takes six times as long for forty arguments."""
    values = [one.encode() if type(one) is str else encoder.encode(one) for one in command]
    parts = [b"$%d\r\n%b\r\n" % (len(value), value) for value in values]
    return b"".join([b"*%d\r\n" % len(values), *parts])


def reply(connection: Any) -> Any:
    """Return the next reply; an error reply is returned as its exception."""
    try:
        return connection.read_response()
    except redis.ResponseError as exc:
        return exc
