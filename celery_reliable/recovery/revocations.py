"""Revocations as the ledger hears of them: what nobody runs is forgotten, what runs is noted."""

from __future__ import annotations

from collections.abc import Iterable

from celery import Celery

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from celery_reliable.model import Record, State
from celery_reliable.recovery.losses import Losses

__all__ = ["call_off"]

_PATIENCE_SECONDS = 1.0


def call_off(app: Celery, task_ids: Iterable[str]) -> None:
    """Let the ledger forget what nobody runs, and note of what runs that it does not run again.

    What goes wrong is only logged: a revocation is best effort, in Celery too.
    """
    try:
        reliable = reliable_of(app)
        if reliable.is_unprotected:
            return
        losses = Losses(app, reliable.ledger)
        for task_id in {str(one) for one in task_ids}:
            record = reliable.ledger.find(task_id, patience_seconds=_PATIENCE_SECONDS)
            if record is not None and record.state in (State.PARKED, State.QUEUED, State.RUNNING):
                _call_off(losses, record)
    except (ReliableError, ValueError) as exc:
        events.revocation_not_recorded(error=exc)


def _call_off(losses: Losses, record: Record) -> None:
    if record.state is not State.RUNNING:
        # Before the record goes, which is all that would find it again.
        losses.try_to_store_revoked(record)
    losses.ledger.cancel(record.task_id, is_revoked=True, patience_seconds=_PATIENCE_SECONDS)
