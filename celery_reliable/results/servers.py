"""Which server keeps an app's results."""

from __future__ import annotations

from typing import Any

from celery.backends.redis import RedisBackend, SentinelBackend

from celery_reliable.ledger import behind_sentinels, server_of

__all__ = ["is_celerys_redis", "results_server_of"]


def is_celerys_redis(backend: Any) -> bool:
    """Whether results are kept on a Redis in Celery's own way: a subclass may have another."""
    return type(backend) in (RedisBackend, SentinelBackend)


def results_server_of(backend: Any) -> tuple[object, ...] | None:
    """Return the server that a backend keeps results on, as `Connector.server` has it; None where
    that cannot be told.
    """
    if not is_celerys_redis(backend):
        return None
    given = backend.connparams
    if type(backend) is SentinelBackend:
        options = backend.app.conf.result_backend_transport_options or {}
        nodes = [(one.get("host"), one.get("port")) for one in given.get("hosts") or ()]
        if not options.get("master_name"):
            return None
        given = {**given, "path": behind_sentinels(options["master_name"], nodes)}
    return server_of(given)
