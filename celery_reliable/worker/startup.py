"""What a worker checks before it starts, and how it waits for a ledger that is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from billiard import get_start_method
from celery import Celery
from celery.backends.redis import RedisBackend

from celery_reliable import events
from celery_reliable.app import Reliable
from celery_reliable.compat import Part, check
from celery_reliable.exceptions import ConfigurationError, LedgerUnavailable, raise_for
from celery_reliable.worker.rights import missing_rights

__all__ = ["check_start"]

T = TypeVar("T")

#: As Celery does while it waits for its broker.
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0


def check_start(w: Any, reliable: Reliable) -> None:
    """Tell of what may be wrong with a worker's settings, its Celery and its servers.

    Raises ConfigurationError for what must be changed before it can start, and LedgerUnavailable
    when the ledger does not answer for as long as Celery would wait for its broker.
    """
    _check_start_method(w)
    findings = raise_for(check(_parts(w, reliable)))
    findings += _when_there(w.app, reliable.check)
    findings += missing_rights(reliable)
    for finding in raise_for(findings):
        events.finding(
            check=finding.id, severity=finding.level, message=finding.message, hint=finding.hint
        )


def _when_there(app: Celery, look: Callable[[], T]) -> T:
    """Return what *look* returns as soon as the ledger answers.

    It is asked as often as Celery would try to connect to its broker: the settings
    `broker_connection_retry_on_startup` and `broker_connection_max_retries` say so.  Raises
    LedgerUnavailable after that, and at once whatever else *look* raises.
    """
    conf = app.conf
    is_patient = conf.broker_connection_retry_on_startup
    if is_patient is None:
        is_patient = conf.broker_connection_retry
    most, done = conf.broker_connection_max_retries or 0, 0
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return look()
        except LedgerUnavailable as exc:
            done += 1
            if not is_patient or (most and done > most):
                raise
            events.ledger_awaited(seconds=pause, retry=done, of=most or "all", error=exc)
        time.sleep(pause)
        pause = min(pause + _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)


def _parts(w: Any, reliable: Reliable) -> Iterator[Part]:
    """Yield what of the package a worker uses."""
    yield from (Part.PRODUCER, Part.WORKER)
    pool = w.pool_cls.__module__.rpartition(".")[2]
    by_pool = {"prefork": Part.PREFORK, "gevent": Part.GEVENT, "eventlet": Part.EVENTLET}
    if pool in by_pool:
        yield by_pool[pool]
    if reliable.is_redis_broker:
        yield Part.REDIS_BROKER
    if reliable.queues_at:
        # What its tasks publish.
        yield Part.REDIS_PRODUCER
    if isinstance(w.app.backend, RedisBackend):
        yield Part.REDIS_RESULTS


def _check_start_method(w: Any) -> None:
    """Raise ConfigurationError where children would not know which worker they belong to."""
    if not w.pool_cls.__module__.endswith(".prefork"):
        return
    method = w.app.conf.get("worker_pool_start_method") or get_start_method()
    if method != "fork":
        raise ConfigurationError(
            f"worker_pool_start_method is {method!r}: the processes of a prefork pool learn from a "
            "fork which worker's lease they run under. Set it to 'fork', or use another pool."
        )
