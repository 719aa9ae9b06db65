"""What the URL of a Redis says.  No error about one shows its password, nor a part of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
from redis.connection import URL_QUERY_ARGUMENT_PARSERS

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.settings import REDIS_SCHEMES, sanitized_url

__all__ = ["Address", "parsed"]

_SOCKET_SCHEMES = ("unix", "redis+socket", "rediss+socket")
_FLAGS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}
#: redis-py takes any text for true.
_FLAG_NAMES = ("ssl_check_hostname", "ssl_validate_ocsp", "ssl_validate_ocsp_stapled")
_PARSERS = {**URL_QUERY_ARGUMENT_PARSERS, "ssl_min_version": int}
_CERT_REQS = ("none", "optional", "required")
_TLS_NAMES = {
    name
    for cls in (redis.SSLConnection, redis.Connection)
    for name in inspect.signature(cls.__init__).parameters
    if name.startswith("ssl_") and name != "ssl_ocsp_context"
}


@dataclass(frozen=True)
class Address:
    """One server, with everything unquoted."""

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

    @property
    def is_socket(self) -> bool:
        """Whether it is a socket of this host's."""
        return bool(self.path)


def parsed(url: str) -> Address:
    """Return what *url* says.  Raises ConfigurationError for one that cannot be read, or whose
    scheme is not a Redis's.
    """
    shown = sanitized_url(url)
    scheme = url.partition("://")[0]
    if scheme not in REDIS_SCHEMES:
        raise ConfigurationError(
            f"The ledger cannot use {shown!r}: it needs a Redis. Give REDIS_URL a redis://, "
            "rediss://, unix:// or sentinel:// address, or CACHE the alias of a django-redis cache."
        )
    parts, port = _split(url)
    if parts is None:
        # Without an "@" the password may be what stands in the port's place.
        hidden = shown if "@" in shown else f"{scheme}://**"
        raise _unreadable(hidden, "its host or its port cannot be read")
    if _has_stray_at(parts):
        raise _unreadable(shown, "there is an '@' where none can be")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    is_socket = scheme in _SOCKET_SCHEMES
    credentials, _, host = parts.netloc.rpartition("@")
    username, _, password = credentials.partition(":")
    if ";" in host:
        raise _unreadable(shown, "each URL of a list has to begin with its scheme")
    path = unquote(f"/{host}{parts.path}" if host else parts.path) if is_socket else ""
    if is_socket and not path.strip("/"):
        raise _unreadable(shown, "it names no socket")
    return Address(
        scheme=scheme,
        shown=shown,
        host="" if is_socket else unquote(parts.hostname or ""),
        port=None if is_socket else port,
        path=path,
        db=_db(query, "" if is_socket else parts.path, shown),
        # In the query as redis-py has them.
        username=unquote(username) or query.get("username") or None,
        password=unquote(password) or query.get("password") or None,
        tls={name: _tls(name, query[name], shown) for name in query if name.startswith("ssl_")},
    )


def _split(url: str) -> tuple[SplitResult | None, int | None]:
    try:
        parts = urlsplit(url)
        is_socket = parts.scheme in _SOCKET_SCHEMES
        return parts, None if is_socket else parts.port
    except ValueError:
        # What it says has a part of the URL in it, and so would an error that is raised here.
        return None, None


def _has_stray_at(parts: SplitResult) -> bool:
    """Whether the user and the password probably ended before they should."""
    stray = [parts.path, parts.fragment]
    for item in parts.query.split("&"):
        name, _, value = item.partition("=")
        is_text = name in ("username", "password") or name.startswith("ssl_")
        stray.append(name if is_text else item)
        stray.append("" if is_text else value)
    return any("@" in text for text in stray)


def _db(query: Mapping[str, str], path: str, shown: str) -> int | None:
    # redis-py's name, kombu's, and the usual place.
    text = query.get("db", query.get("virtual_host", unquote(path))).strip("/")
    if not text:
        return None
    if not (text.isdecimal() and len(text) < 10):
        raise _unreadable(shown, "its database is no number")
    return int(text)


def _tls(name: str, text: str, shown: str) -> Any:
    if name not in _TLS_NAMES:
        raise _unreadable(shown, f"there is no argument {name!r}")
    if name == "ssl_cert_reqs":
        # As Celery writes them, and as redis-py does.
        value: Any = text.lower().removeprefix("cert_")
        if value not in _CERT_REQS:
            raise _unreadable(shown, f"{name} is none of {', '.join(_CERT_REQS)}")
        return value
    if name in _FLAG_NAMES:
        if text.lower() not in _FLAGS:
            raise _unreadable(shown, f"{name} is neither 'true' nor 'false'")
        return _FLAGS[text.lower()]
    if name in _PARSERS:
        value = _parsed_by_redis(name, text)
        if value is None:
            raise _unreadable(shown, f"{name} has no value that redis-py can read")
        return value
    return text


def _parsed_by_redis(name: str, text: str) -> Any:
    parse: Any = _PARSERS[name]
    try:
        return parse(text)
    except (ValueError, TypeError, LookupError, AttributeError):
        return None


def _unreadable(shown: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The URL of the ledger's Redis, {shown!r}, cannot be used: {why}. Correct REDIS_URL (or, "
        "without it, broker_url). In a user, a password or a path, whatever means something in a "
        "URL is written quoted: '#' as %23, '/' as %2F, '?' as %3F, '@' as %40, '[' as %5B."
    )
