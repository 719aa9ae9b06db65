"""Revocations at the ledger: a task that nobody runs is forgotten, a running one is marked."""

from __future__ import annotations

from collections.abc import Iterable

from celery import Celery

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger
from celery_reliable.model import Record, State
from celery_reliable.recovery.stored_results import try_to_store_revoked

__all__ = ["call_off"]

#: For how long the ledger is asked, for each task: the worker's main loop or a caller waits.
_PATIENCE_SECONDS = 1.0


def call_off(app: Celery, task_ids: Iterable[str]) -> None:
    """Record the revocation of tasks: one that nobody runs is forgotten, and its result stored; one
    that runs is marked, so that it does not run again.

    What goes wrong is only logged, as a revocation is best effort in Celery too.
    """
    try:
        reliable = reliable_of(app)
        if reliable.is_unprotected:
            return
        for task_id in {str(one) for one in task_ids}:
            record = reliable.ledger.find(task_id, patience_seconds=_PATIENCE_SECONDS)
            if record is not None and record.state in (State.PARKED, State.QUEUED, State.RUNNING):
                _call_off(app, reliable.ledger, record)
    except (ReliableError, ValueError) as exc:
        events.revocation_not_recorded(error=exc)


def _call_off(app: Celery, ledger: Ledger, record: Record) -> None:
    if record.state is not State.RUNNING:
        # First, as without its record nobody would find the task again.
        try_to_store_revoked(app, record)
    ledger.revoke(record.task_id, is_noted=True, patience_seconds=_PATIENCE_SECONDS)
