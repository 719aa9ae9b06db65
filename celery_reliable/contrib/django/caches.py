"""The Redis behind a django-redis alias, with the prefix that the alias gives its keys."""

from __future__ import annotations

from typing import Any

from django.core.cache import InvalidCacheBackendError
from django.core.cache import caches as django_caches

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import Connector

__all__ = ["connector_of"]

_PROBE = "celery-reliable-probe"


def connector_of(alias: str) -> Connector:
    """Return how to reach the Redis of the cache *alias*.  Nothing is connected yet.

    Raises:
        ConfigurationError: there is no such cache, or none of django-redis on one Redis.
    """
    cache = _cache_of(alias)
    pool = cache.client.get_client(write=True).connection_pool
    return Connector.from_pool(
        pool, shown=_shown(alias, pool.connection_kwargs), key_prefix=_prefix_of(alias, cache)
    )


def _cache_of(alias: str) -> Any:
    try:
        cache = django_caches[alias]
    except InvalidCacheBackendError as exc:
        known = ", ".join(map(repr, django_caches.settings)) or "none"
        raise ConfigurationError(
            f"CACHE in CELERY_RELIABLE is {alias!r}, which cannot be opened ({exc}). The entries "
            f"of CACHES are {known}. Name one whose BACKEND is django_redis.cache.RedisCache, or "
            "give REDIS_URL instead."
        ) from exc
    try:
        from django_redis.client import DefaultClient, ShardClient
    except ImportError:
        raise ConfigurationError(
            f"CACHE in CELERY_RELIABLE is {alias!r}, but django-redis is not installed: "
            'pip install "celery-reliable[django]", or give REDIS_URL instead.'
        ) from None
    client = getattr(cache, "client", None)
    if not isinstance(client, DefaultClient) or isinstance(client, ShardClient):
        raise ConfigurationError(
            f"CACHE in CELERY_RELIABLE is {alias!r}, which is no django-redis cache on one Redis "
            f"server (it is a {type(cache).__module__}.{type(cache).__qualname__}). Name one whose "
            "BACKEND is django_redis.cache.RedisCache, or give REDIS_URL instead."
        )
    return cache


def _prefix_of(alias: str, cache: Any) -> str:
    # The cache itself makes the key: KEY_PREFIX, VERSION and KEY_FUNCTION all matter.
    made = str(cache.client.make_key(_PROBE))
    if not made.endswith(_PROBE):
        raise ConfigurationError(
            f"CACHE in CELERY_RELIABLE is {alias!r}, whose KEY_FUNCTION makes {made!r} of the key "
            f"{_PROBE!r}: that is no prefix, so the ledger's keys cannot have it too. Give "
            "REDIS_URL instead."
        )
    return made.removesuffix(_PROBE)


def _shown(alias: str, kwargs: dict[str, Any]) -> str:
    where = kwargs.get("path") or f"{kwargs.get('host', '?')}:{kwargs.get('port', '?')}"
    return f"{where}, database {kwargs.get('db', 0)} (the cache {alias!r})"
