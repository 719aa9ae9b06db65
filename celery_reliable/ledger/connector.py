"""How to reach a Redis by its URL: plain, TLS, socket or Sentinel."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelManagedConnection, SentinelManagedSSLConnection

from celery_reliable.compat.redis import keep_connection, put_aside, turn_into
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.redis_io import losing
from celery_reliable.settings import REDIS_SCHEMES, sanitized_url, split_urls

__all__ = [
    "Address",
    "Connector",
    "KeptOpenConnection",
    "behind_sentinels",
    "connect",
    "parsed",
    "server_of",
]

_SOCKET_SCHEMES = ("unix", "redis+socket", "rediss+socket")
_FLAG_NAMES = ("ssl_check_hostname", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled")
#: redis-py takes any other text for true, also "off".
_FLAGS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n"), False),
}
_CERT_REQS = ("none", "optional", "required")
_TLS_NAMES = {
    name
    for cls in (redis.SSLConnection, redis.Connection)
    for name in inspect.signature(cls.__init__).parameters
    if name.startswith("ssl_") and name != "ssl_ocsp_context"
}


@dataclass(frozen=True)
class Address:
    """One server, with everything unquoted.  No error about a URL shows its password, nor a part of
    it.
    """

    scheme: str
    #: The URL without user and password, for messages to people.
    shown: str
    #: Empty where the URL names none, as behind a socket.
    host: str
    port: int | None
    #: Of the socket; empty for a host.
    path: str
    #: None where the URL names none.
    db: int | None
    username: str | None
    password: str | None
    #: The arguments of the connection that are about TLS.
    tls: Mapping[str, Any]


def parsed(url: str) -> Address:
    """Return what *url* says.  Raises ConfigurationError for one that cannot be read, or whose
    scheme is not a Redis's.
    """
    shown = sanitized_url(url)
    scheme, _, rest = url.partition("://")
    if scheme not in REDIS_SCHEMES:
        raise ConfigurationError(
            f"The ledger cannot use {shown!r}: it needs a Redis. Give REDIS_URL a redis://, "
            "rediss://, unix:// or sentinel:// address."
        )
    is_socket = scheme in _SOCKET_SCHEMES
    parts, found = _read(f"{'unix' if is_socket else 'redis'}://{rest}")
    if parts is None:
        # Without an "@" the password may be what stands in the port's place.
        hidden = shown if "@" in shown else f"{scheme}://**"
        raise _unreadable(hidden, "its host, its port or a value cannot be read")
    if _has_stray_at(parts):
        raise _unreadable(shown, "there is an '@' where none can be")
    if ";" in parts.netloc.rpartition("@")[2]:
        raise _unreadable(shown, "each URL of a list has to begin with its scheme")
    if is_socket and not found.get("path", "").strip("/"):
        raise _unreadable(shown, "it names no socket")
    # redis-py finds a database in "/1/2" too, and takes any name of the query for the server's.
    asked = dict(parse_qsl(parts.query))
    # kombu calls it a virtual host.
    path = "" if is_socket else unquote(parts.path)
    db = asked.get("db", asked.get("virtual_host", path)).strip("/")
    if not re.fullmatch(r"[0-9]{0,9}", db):
        raise _unreadable(shown, "its database is no number")
    return Address(
        scheme=scheme,
        shown=shown,
        host="" if is_socket else unquote(parts.hostname or ""),
        port=None if is_socket else parts.port,
        path=found["path"] if is_socket else "",
        db=int(db) if db else None,
        username=found.get("username"),
        password=found.get("password"),
        tls=_tls(found, asked, shown),
    )


def _read(url: str) -> tuple[SplitResult | None, dict[str, Any]]:
    try:
        return urlsplit(url), parse_url(url)
    except ValueError:
        # Its text has a part of the URL in it, and so would an error that is raised here.
        return None, {}


def _has_stray_at(parts: SplitResult) -> bool:
    """Whether the user and the password probably ended before they should."""
    stray = [parts.path, parts.fragment]
    for item in parts.query.split("&"):
        name, _, value = item.partition("=")
        is_text = name in ("username", "password") or name.startswith("ssl_")
        stray += [name, "" if is_text else value]
    return any("@" in text for text in stray)


def _tls(found: Mapping[str, Any], asked: Mapping[str, str], shown: str) -> dict[str, Any]:
    tls = {name: value for name, value in found.items() if name.startswith("ssl_")}
    for name in tls:
        if name not in _TLS_NAMES:
            raise _unreadable(shown, f"there is no argument {name!r}")
        if name in _FLAG_NAMES:
            tls[name] = _FLAGS.get(asked[name].lower())
            if tls[name] is None:
                raise _unreadable(shown, f"{name} is neither 'true' nor 'false'")
    # As Celery writes them, and as redis-py does.
    if (reqs := tls.get("ssl_cert_reqs")) is not None:
        tls["ssl_cert_reqs"] = reqs = reqs.lower().removeprefix("cert_")
        if reqs not in _CERT_REQS:
            raise _unreadable(shown, f"ssl_cert_reqs is none of {', '.join(_CERT_REQS)}")
    # The older ones of the releases that are supported leave it as text.
    if (least := tls.get("ssl_min_version")) is not None:
        if isinstance(least, str) and not re.fullmatch(r"[0-9]{1,9}", least):
            raise _unreadable(shown, "ssl_min_version is no number")
        tls["ssl_min_version"] = int(least)
    return tls


def _unreadable(shown: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The URL of the ledger's Redis, {shown!r}, cannot be used: {why}. Correct REDIS_URL (or, "
        "without it, broker_url). In a user, a password or a path, whatever means something in a "
        "URL is written quoted: '#' as %23, '/' as %2F, '?' as %3F, '@' as %40, '[' as %5B."
    )


class KeptOpenConnection:
    """Mixed into a class of redis-py's connections, for the heartbeat's.  redis-py closes a
    connection after a timeout.  The server would see it end, and the sweeper would take that for
    the end of the worker.

    When a reply does not come in time, the socket is put aside and not closed.  The next command
    goes over a new one.
    """

    #: Sockets that were put aside, the oldest first.  The owner of the connection closes them.
    left_open: list[Any]

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next reply, as redis-py does."""
        kwargs["disconnect_on_error"] = False
        try:
            return super().read_response(*args, **kwargs)  # type: ignore[misc]
        except redis.TimeoutError:
            sock = put_aside(self)
            if sock is not None:
                self.left_open.append(sock)
            raise
        except redis.ResponseError:
            raise
        except BaseException:
            # The unread reply would be taken for that of the next command.
            self.disconnect()  # type: ignore[attr-defined]
            raise

    def close_left_open(self, most: int = 0) -> None:
        """Close the sockets that were put aside, except the *most* latest."""
        while len(self.left_open) > most:
            self.left_open.pop(0).close()


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
        *,
        arguments: Mapping[str, Any],
        has_sentinel: bool = False,
    ) -> None:
        self._make_pool = make_pool
        #: Whether it asks Sentinels for the server.
        self.has_sentinel = has_sentinel
        #: Server, user and password, to be compared; None if they may change.  Behind Sentinel the
        #: server is the one that certain Sentinels call by a certain name.
        self.server = server_of(arguments)
        #: The number of the database.
        self.db = int(arguments.get("db") or 0)
        #: The address without its password, for messages to people.
        self.shown = shown

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
            connection = turn_into(pool.make_connection(), KeptOpenConnection)
            connection.left_open = []
            keep_connection(client, connection)
        return client


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
    kwargs: dict[str, Any] = {"db": first.db or 0, **auth}
    connection_class: Any = redis.Connection
    if first.path:
        connection_class = redis.UnixDomainSocketConnection
        kwargs["path"] = first.path
    else:
        kwargs.update(host=first.host or "127.0.0.1", port=first.port or 6379)
        # Arguments for TLS ask for it, as with kombu.
        if first.scheme == "rediss" or ssl or first.tls:
            connection_class = redis.SSLConnection
            kwargs.update(_tls_options(first, given))
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
    tls = _tls_options(next((one for one in nodes if one.tls), nodes[0]), ssl)
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


def _tls_options(address: Address, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments about TLS of a URL and of `broker_use_ssl`, which may say CERT_NONE."""
    found = {**address.tls, **given}
    reqs = found.get("ssl_cert_reqs")
    if isinstance(reqs, str):
        found["ssl_cert_reqs"] = reqs.lower().removeprefix("cert_")
    return found
