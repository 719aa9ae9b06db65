"""What a worker checks before it starts, and how it waits for a ledger that is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from celery import Celery

from celery_reliable import events
from celery_reliable.app import Reliable, facts_of
from celery_reliable.compat.backend import meta_at_once
from celery_reliable.compat.relied import has_all
from celery_reliable.doctor import (
    check_broker,
    check_hooks,
    check_ledger,
    check_pool,
    check_results,
)
from celery_reliable.exceptions import LedgerUnavailable, raise_for
from celery_reliable.model import Finding
from celery_reliable.pool import kind_of
from celery_reliable.settings import check_app

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
    pool = kind_of(w.pool_cls)
    findings = raise_for(check_pool(pool, w.app.conf))
    findings += raise_for(check_hooks(reliable, pool))
    # It is tried once, and the processes of the pool know it from the fork.
    has_all(meta_at_once)
    findings += raise_for(check_app(facts_of(reliable)))
    findings += raise_for(_when_there(w.app, lambda: _of_ledger(reliable)))
    # What does not answer is waited for elsewhere.
    findings += raise_for([*(check_broker(reliable) or ()), *(check_results(reliable) or ())])
    for finding in findings:
        events.finding(
            check=finding.id, severity=finding.level, message=finding.message, hint=finding.hint
        )


def _of_ledger(reliable: Reliable) -> list[Finding]:
    ledger = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=3.0)
    try:
        return check_ledger(reliable, ledger)[0]
    finally:
        ledger.close()


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
