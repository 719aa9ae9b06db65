"""What the URL of a Redis says.  No error about one shows its password, nor a part of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import redis
from redis.connection import parse_url

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.settings import REDIS_SCHEMES, sanitized_url

__all__ = ["Address", "parsed"]

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
    scheme, _, rest = url.partition("://")
    if scheme not in REDIS_SCHEMES:
        raise ConfigurationError(
            f"The ledger cannot use {shown!r}: it needs a Redis. Give REDIS_URL a redis://, "
            "rediss://, unix:// or sentinel:// address, or CACHE the alias of a django-redis cache."
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
