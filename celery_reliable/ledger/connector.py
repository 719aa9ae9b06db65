"""How to reach a Redis: by URL (plain, TLS, socket, Sentinel) or by somebody else's connection
pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from celery_reliable.compat.redis import keep_connection
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger.address import Address, parsed
from celery_reliable.ledger.kept_open import kept_open
from celery_reliable.redis_io import losing
from celery_reliable.settings import sanitized_url, split_urls

__all__ = ["Connector", "behind_sentinels", "connect", "server_of"]

#: Redis answers a script in well under a millisecond.  Only a server that is away takes so long.
CONNECT_TIMEOUT_SECONDS = 2.0
REPLY_TIMEOUT_SECONDS = 5.0


class Connector:
    """Makes clients for one Redis, each with its own connections.

    They do not retry by themselves, as redis-py would: the ledger has to know whether a command
    was sent once or more often, as its answers depend on that.
    """

    def __init__(
        self,
        make_pool: Callable[..., redis.ConnectionPool],
        shown: str,
        key_prefix: str = "",
        *,
        arguments: Mapping[str, Any] | None = None,
        has_sentinel: bool = False,
    ) -> None:
        self._make_pool = make_pool
        #: Whether it asks Sentinels for the server.
        self.has_sentinel = has_sentinel
        given = arguments or {}
        #: Server, user and password, to be compared; None if they may change.  Behind Sentinel the
        #: server is the one that certain Sentinels call by a certain name.
        self.server = server_of(given)
        #: The number of the database.
        self.db = int(given.get("db") or 0)
        #: The address without its password, for messages to people.
        self.shown = shown
        #: What a django-redis alias puts before its keys.
        self.key_prefix = key_prefix

    def client(
        self, *, reply_timeout_seconds: float = REPLY_TIMEOUT_SECONDS, single: bool = False
    ) -> redis.Redis:
        """Return a new client; nothing is connected yet.  *single*: it keeps one connection of its
        own, for one thread.
        """
        pool = self._make_pool(
            socket_timeout=reply_timeout_seconds,
            socket_connect_timeout=min(CONNECT_TIMEOUT_SECONDS, reply_timeout_seconds),
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            retry_on_error=[],
        )
        client = redis.Redis(connection_pool=pool)
        if single:
            keep_connection(client, kept_open(pool.make_connection()))
        return client

    @classmethod
    def from_pool(cls, pool: redis.ConnectionPool, shown: str, key_prefix: str = "") -> Connector:
        """Return a connector to the server that *pool* (of a cache, say) is connected to."""

        def make(**options: Any) -> redis.ConnectionPool:
            kwargs = {**pool.connection_kwargs, **options, "decode_responses": False}
            return redis.ConnectionPool(connection_class=losing(pool.connection_class), **kwargs)

        return cls(make, shown, key_prefix, arguments=pool.connection_kwargs)


def server_of(arguments: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return what tells a server, and who one is to it, of the arguments of a connection; None for
    one that cannot be told.
    """
    place = arguments.get("path") or (arguments.get("host"), arguments.get("port") or 6379)
    if place == (None, 6379) or arguments.get("credential_provider") is not None:
        return None
    return place, arguments.get("username") or None, arguments.get("password") or None


def behind_sentinels(master_name: str, nodes: Iterable[tuple[Any, Any]]) -> tuple[object, ...]:
    """Return what `server_of` takes for the ``path`` of the server that Sentinels at these hosts
    and ports call *master_name*.
    """
    return master_name, frozenset(nodes)


def connect(
    url: str, *, transport_options: Mapping[str, Any] | None = None, ssl: Any = None
) -> Connector:
    """Return a connector for *url*: ``redis://``, ``rediss://``, ``unix://`` or ``sentinel://`` as
    Celery writes them.

    Nothing is connected yet.  *transport_options* are Celery's (``master_name`` and
    ``sentinel_kwargs`` for Sentinel), *ssl* is Celery's ``broker_use_ssl``.  Raises
    ConfigurationError for a URL that is none of these.
    """
    options = dict(transport_options or {})
    given: dict[str, Any] = dict(ssl) if isinstance(ssl, Mapping) else {}
    urls = split_urls(url)
    first = parsed(urls[0])
    if first.scheme == "sentinel":
        return _sentinel([parsed(one) for one in urls], options, given, sanitized_url(url))
    auth: dict[str, Any] = {"username": first.username, "password": first.password}
    if options.get("credential_provider") is not None:
        auth = {"credential_provider": options["credential_provider"]}
    if first.is_socket:
        there: dict[str, Any] = {"path": first.path, "db": first.db or 0, **auth}

        def make_unix(**extra: Any) -> redis.ConnectionPool:
            extra.pop("socket_connect_timeout", None)
            return redis.ConnectionPool(
                connection_class=losing(redis.UnixDomainSocketConnection), **there, **extra
            )

        return Connector(make_unix, first.shown, arguments=there)
    kwargs: dict[str, Any] = {
        "host": first.host or "127.0.0.1",
        "port": first.port or 6379,
        "db": first.db or 0,
        **auth,
    }
    connection_class: Any = redis.Connection
    # Arguments for TLS ask for it, as with kombu.
    if first.scheme == "rediss" or ssl or first.tls:
        connection_class = redis.SSLConnection
        kwargs.update(_tls(first, given))
    return Connector(
        lambda **extra: redis.ConnectionPool(
            connection_class=losing(connection_class), **{**kwargs, **extra}
        ),
        first.shown,
        arguments=kwargs,
    )


def _sentinel(
    nodes: Sequence[Address], options: Mapping[str, Any], ssl: Mapping[str, Any], shown: str
) -> Connector:
    master_name = options.get("master_name")
    if not master_name:
        raise ConfigurationError(
            f"The ledger cannot find its master through {shown!r}: give broker_transport_options "
            "a 'master_name'."
        )
    # Each may say what is the same for all.
    username = next((one.username for one in nodes if one.username), None)
    password = next((one.password for one in nodes if one.password), None)
    db = next((one.db for one in nodes if one.db is not None), 0)
    tls = _tls(next((one for one in nodes if one.tls), nodes[0]), ssl)
    sentinels = [(one.host or "127.0.0.1", one.port or 26379) for one in nodes]

    def make(**extra: Any) -> redis.ConnectionPool:
        auth = {k: v for k, v in (("username", username), ("password", password)) if v}
        # Else redis-py asks each Sentinel that is away for seconds, whatever our own patience.
        asking = {k: v for k, v in extra.items() if k == "retry" or k.startswith("socket_")}
        manager = Sentinel(
            sentinels,
            min_other_sentinels=options.get("min_other_sentinels", 0),
            sentinel_kwargs={**asking, **(options.get("sentinel_kwargs") or {})},
            **extra,
            **auth,
            **tls,
            db=db,
            ssl=bool(tls),
        )
        connection_class = SentinelManagedSSLConnection if tls else SentinelManagedConnection
        pool: redis.ConnectionPool = manager.master_for(
            str(master_name), redis.Redis, connection_class=losing(connection_class)
        ).connection_pool
        return pool

    there: dict[str, Any] = {"db": db}
    # kombu goes by the URL of the Sentinel that it asks first, and by another's when that is away.
    if len({(one.scheme, one.db or 0, one.username, one.password) for one in nodes}) == 1:
        there["path"] = behind_sentinels(str(master_name), sentinels)
        there.update(username=username, password=password)
        there["credential_provider"] = options.get("credential_provider")
    return Connector(make, shown, arguments=there, has_sentinel=True)


def _tls(address: Address, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments about TLS of a URL and of `broker_use_ssl`, which may say CERT_NONE."""
    found = {**address.tls, **given}
    reqs = found.get("ssl_cert_reqs")
    if isinstance(reqs, str):
        found["ssl_cert_reqs"] = reqs.lower().removeprefix("cert_")
    return found
