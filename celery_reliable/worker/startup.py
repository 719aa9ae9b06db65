"""A worker that starts while the ledger's Redis is away, or loads its data."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from celery import Celery

from celery_reliable import events
from celery_reliable.exceptions import LedgerUnavailable

__all__ = ["when_there"]

T = TypeVar("T")

#: As Celery does while it waits for its broker.
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0


def when_there(app: Celery, look: Callable[[], T]) -> T:
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
