"""Where the ledger of an app is, as its settings say, and whether its queues are there too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import Connector, connect
from celery_reliable.settings import REDIS_SCHEMES, ReliableConfig, sanitized_url, split_urls

__all__ = ["ledger_of", "place_in_ledger", "scheme_of"]

#: The values of the setting broker_transport with which a redis:// URL means lists on that server,
#: and those with which a sentinel:// URL does.
_PLAIN = ("", "redis", "rediss", "celery_reliable.transport:Transport")
_BEHIND_SENTINEL = ("", "sentinel", "celery_reliable.transport:SentinelTransport")


def scheme_of(url: str) -> str:
    """Return the scheme of a broker's URL."""
    return url.split("://", 1)[0]


def ledger_of(conf: Any, config: ReliableConfig, broker_url: str) -> Connector:
    """Return how the ledger's Redis is reached, for an app with these settings.

    Raises ConfigurationError if no setting says so.
    """
    if config.redis_url is not None:
        return connect(config.redis_url, transport_options=conf.broker_transport_options)
    if scheme_of(broker_url) not in REDIS_SCHEMES:
        scheme = scheme_of(broker_url)
        raise ConfigurationError(
            f"The broker is {scheme}://, which cannot hold the ledger. Give CELERY_RELIABLE a "
            "REDIS_URL (or the CACHE alias of a django-redis cache) that names a Redis server "
            "which evicts nothing."
        )
    if len(split_urls(broker_url)) > 1 and not broker_url.startswith("sentinel://"):
        raise ConfigurationError(
            f"The broker is a list of servers, {sanitized_url(broker_url)!r}: kombu goes "
            "on to the next when one is away, and the ledger would stay with the first. Let "
            "Sentinel (sentinel://) say which server is the master, or give "
            "CELERY_RELIABLE a REDIS_URL, for a ledger that stays where it is."
        )
    return connect(
        broker_url,
        transport_options=conf.broker_transport_options,
        ssl=conf.broker_use_ssl,
    )


def place_in_ledger(conf: Any, url: Any, ledger_connector: Callable[[], Connector]) -> str:
    """Return where a broker's URL points to, without a password, if that is the very database of
    the ledger; else empty.
    """
    if not isinstance(url, str) or scheme_of(url) not in REDIS_SCHEMES:
        return ""
    is_behind = scheme_of(url) == "sentinel"
    # kombu goes on to the next of a list; Sentinels name the same server.
    if (";" in url and not is_behind) or (
        (conf.broker_transport or "") not in (_BEHIND_SENTINEL if is_behind else _PLAIN)
    ):
        return ""
    there = connect(url, transport_options=conf.broker_transport_options, ssl=conf.broker_use_ssl)
    ledger = ledger_connector()
    if ledger.server is None or (there.server, there.db) != (ledger.server, ledger.db):
        return ""
    return there.shown
