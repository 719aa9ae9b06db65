"""The Redis channel of workers and producers, as far as both need the same."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, ClassVar

import redis
from kombu import Connection
from kombu.utils.encoding import bytes_to_str

from celery_reliable.compat.kombu import OpenChannel
from celery_reliable.redis_io import losing
from celery_reliable.settings import REDIS_SCHEMES

if TYPE_CHECKING:
    from celery_reliable.broker.worker_unacked import WorkerUnacked

__all__ = [
    "ConnectedChannel",
    "forget_server",
    "keeping_transport",
    "server_seen",
    "transport_for",
]


class ConnectedChannel(OpenChannel):
    """kombu's Redis channel, whose connections count as lost when their server takes no writes."""

    #: The unacked hash of the worker that consumes through this channel; None on others.
    reliable_unacked: WorkerUnacked | None = None

    def connection_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return how connections are made: one whose server may not write is closed as lost."""
        return {**arguments, "connection_class": losing(arguments["connection_class"])}


def transport_for(scheme: str) -> str | None:
    """Return our transport's import path for a broker URL's scheme; None when there is none."""
    if scheme == "sentinel":
        return "celery_reliable.transport:SentinelTransport"
    if scheme in REDIS_SCHEMES:
        return "celery_reliable.transport:Transport"
    return None


class ReliableConnection(Connection):
    """kombu's connection, which keeps our transport as it goes on to the next URL of a list.

    kombu would take the transport from the scheme of that URL.  Then a worker behind several
    Sentinels would keep what it is delivered as Celery alone does, as soon as it has once failed to
    connect.
    """

    #: kombu shows a connection by this, in place of its transport's name.
    resolve_aliases: ClassVar[dict[str, str]] = dict(Connection.resolve_aliases)
    transport_cls: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reliable_transport = self.transport_cls

    def switch(self, conn_str: str) -> None:
        """Go on to another URL."""
        super().switch(conn_str)
        if self.reliable_transport == transport_for(conn_str.partition("://")[0]):
            self.transport_cls = self.reliable_transport


def keeping_transport(cls: type[Connection], scheme: str) -> type[Connection]:
    """Return the class of connections for a project that has *cls* for its own.  Those of our
    transport are shown with the *scheme* of the broker's URL.
    """
    path = transport_for(scheme)
    if path is not None:
        ReliableConnection.resolve_aliases[path] = scheme
    if cls is Connection:
        return ReliableConnection
    return type(cls.__name__, (ReliableConnection, cls), {})


#: The beginning of the mark's key.  A flush, or a restart without its data, removes the mark.
_MARK = "celery-reliable.mark:"


def server_seen(channel: Any, namespace: str) -> str:
    """Return a name for the server of *channel* that changes when it may have lost messages; empty
    if its user may not ask for that.

    Raises redis-py's errors when it is away.
    """
    client, key = _client_and_mark(channel, namespace)
    try:
        client.set(key, secrets.token_hex(8), nx=True)
        mark = bytes_to_str(client.get(key) or b"")
        run_id = str(client.info("server").get("run_id", ""))
    except redis.ResponseError:
        return ""
    return f"{run_id} {mark}"


def forget_server(channel: Any, namespace: str) -> None:
    """Remove the mark."""
    client, key = _client_and_mark(channel, namespace)
    client.delete(key)


def _client_and_mark(channel: Any, namespace: str) -> tuple[redis.Redis, str]:
    # kombu's client adds its prefix to the keys of some commands only, so this is a plain one.
    client = redis.Redis(connection_pool=channel.pool)
    return client, f"{channel.global_keyprefix}{_MARK}{namespace}"
