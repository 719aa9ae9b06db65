"""How to reach a Redis: by URL (plain, TLS, socket, Sentinel) or by somebody else's connection
pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from celery_reliable.exceptions import ConfigurationError

__all__ = ["Connector", "connect"]

#: Redis answers a script in well under a millisecond; this is for a server that is not there.
CONNECT_TIMEOUT_SECONDS = 2.0
REPLY_TIMEOUT_SECONDS = 5.0


class Connector:
    """Makes clients for one Redis, each with its own connections.

    redis-py's own retries are switched off in all of them: a command that is repeated behind our
    back could not be told from one that is sent once, and the ledger's answers depend on the
    difference.
    """

    def __init__(
        self, make_pool: Callable[..., redis.ConnectionPool], shown: str, key_prefix: str = ""
    ) -> None:
        self._make_pool = make_pool
        #: The address without its password, for messages to people.
        self.shown = shown
        #: What a django-redis alias puts before its keys.
        self.key_prefix = key_prefix

    def client(
        self, *, reply_timeout_seconds: float = REPLY_TIMEOUT_SECONDS, single: bool = False
    ) -> redis.Redis:
        """Return a new client.  *single*: it keeps one connection of its own, for one thread."""
        pool = self._make_pool(
            socket_timeout=reply_timeout_seconds,
            socket_connect_timeout=min(CONNECT_TIMEOUT_SECONDS, reply_timeout_seconds),
            retry=Retry(NoBackoff(), 0),
            retry_on_timeout=False,
            retry_on_error=[],
        )
        return redis.Redis(connection_pool=pool, single_connection_client=single)

    @classmethod
    def from_pool(cls, pool: redis.ConnectionPool, shown: str, key_prefix: str = "") -> Connector:
        """Return a connector to the server that *pool* (of a cache, say) is connected to."""

        def make(**options: Any) -> redis.ConnectionPool:
            kwargs = {**pool.connection_kwargs, **options, "decode_responses": False}
            return redis.ConnectionPool(connection_class=pool.connection_class, **kwargs)

        return cls(make, shown, key_prefix)


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
    first = url.split(";")[0]
    parts = urlsplit(first)
    shown = _without_password(first)
    tls: dict[str, Any] = dict(ssl) if isinstance(ssl, Mapping) else {}
    if parts.scheme in ("redis+socket", "unix"):
        path = parts.path if not parts.netloc else f"/{parts.netloc}{parts.path}"
        query = dict(item.split("=", 1) for item in parts.query.split("&") if "=" in item)
        db = int(query.get("virtual_host", query.get("db", "0")).strip("/") or 0)

        def make_unix(**extra: Any) -> redis.ConnectionPool:
            extra.pop("socket_connect_timeout", None)
            return redis.ConnectionPool(
                connection_class=redis.UnixDomainSocketConnection,
                path=path,
                db=db,
                username=parts.username,
                password=parts.password,
                **extra,
            )

        return Connector(make_unix, shown)
    if parts.scheme == "sentinel":
        return _sentinel(url, options, tls, shown)
    if parts.scheme not in ("redis", "rediss"):
        raise ConfigurationError(
            f"The ledger cannot use {shown!r}: it needs a Redis. Give REDIS_URL a redis://, "
            "rediss://, unix:// or sentinel:// address, or CACHE the alias of a django-redis cache."
        )
    kwargs: dict[str, Any] = {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 6379,
        "db": _db(parts.path),
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }
    if options.get("credential_provider") is not None:
        kwargs["credential_provider"] = options["credential_provider"]
        del kwargs["username"], kwargs["password"]
    connection_class: Any = redis.Connection
    if parts.scheme == "rediss" or ssl:
        connection_class = redis.SSLConnection
        query = dict(item.split("=", 1) for item in parts.query.split("&") if "=" in item)
        kwargs.update({k: v for k, v in query.items() if k.startswith("ssl_")})
        kwargs.update(tls)
        reqs = kwargs.get("ssl_cert_reqs")
        if isinstance(reqs, str) and reqs.startswith("CERT_"):
            kwargs["ssl_cert_reqs"] = reqs.removeprefix("CERT_").lower()
    return Connector(
        lambda **extra: redis.ConnectionPool(
            connection_class=connection_class, **{**kwargs, **extra}
        ),
        shown,
    )


def _sentinel(
    url: str, options: Mapping[str, Any], tls: Mapping[str, Any], shown: str
) -> Connector:
    nodes = []
    path = ""
    password = username = None
    for one in url.split(";"):
        parts = urlsplit(one)
        nodes.append((parts.hostname or "127.0.0.1", parts.port or 26379))
        path = path or parts.path
        username = username or parts.username
        password = password or parts.password
    master_name = options.get("master_name")
    if not master_name:
        raise ConfigurationError(
            f"The ledger cannot find its master through {shown!r}: give broker_transport_options "
            "a 'master_name'."
        )

    def make(**extra: Any) -> redis.ConnectionPool:
        auth = {k: unquote(v) for k, v in (("username", username), ("password", password)) if v}
        # Else redis-py asks each Sentinel that is away for seconds, whatever our own patience.
        asking = {k: v for k, v in extra.items() if k == "retry" or k.startswith("socket_")}
        manager = Sentinel(
            nodes,
            min_other_sentinels=options.get("min_other_sentinels", 0),
            sentinel_kwargs={**asking, **(options.get("sentinel_kwargs") or {})},
            **extra,
            **auth,
            **tls,
            db=_db(path),
            ssl=bool(tls),
        )
        pool: redis.ConnectionPool = manager.master_for(
            str(master_name), redis.Redis
        ).connection_pool
        return pool

    return Connector(make, shown)


def _db(path: str) -> int:
    text = path.strip("/")
    return int(text) if text else 0


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if not parts.password:
        return url
    host = parts.hostname or ""
    if parts.port:
        host = f"{host}:{parts.port}"
    user = f"{parts.username}:**@" if parts.username else ":**@"
    return parts._replace(netloc=user + host).geturl()
