"""The Redis behind a django-redis alias, with the prefix that the alias gives its keys."""

from __future__ import annotations

from django.core.cache import InvalidCacheBackendError, caches

from celery_reliable.exceptions import ConfigurationError
from celery_reliable.ledger import Connector

__all__ = ["connector_of"]


def connector_of(alias: str) -> Connector:
    """Return how to reach the Redis of the cache *alias*.  Nothing is connected yet.

    Raises:
        ConfigurationError: there is no such cache, or none of django-redis on one Redis.
    """
    try:
        client = caches[alias].client
        pool = client.get_client(write=True).connection_pool
    except (InvalidCacheBackendError, AttributeError, NotImplementedError) as exc:
        raise ConfigurationError(
            f"CACHE in CELERY_RELIABLE is {alias!r}, which is no django-redis cache on one Redis "
            f"server ({exc or type(exc).__name__}). Name an entry of CACHES ({', '.join(caches)}) "
            "with the BACKEND django_redis.cache.RedisCache, or give REDIS_URL instead."
        ) from exc
    return Connector.from_pool(
        pool,
        shown=f"the Redis of the cache {alias!r}",
        # The cache itself makes the prefix: KEY_PREFIX, VERSION and KEY_FUNCTION all matter.
        key_prefix=str(client.make_key("")),
    )
