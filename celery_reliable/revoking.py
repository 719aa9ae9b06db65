"""Revocations: the ledger hears of them from whoever calls, and from each worker that does.

Workers remember what is revoked as long as they live, and hear it only while they listen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from celery import Celery
from celery.app.control import Control
from celery.utils.functional import maybe_list

from celery_reliable import events
from celery_reliable.application import reliable_of
from celery_reliable.compat.app import give_part, make_part_by
from celery_reliable.exceptions import ReliableError
from celery_reliable.losses import Losses
from celery_reliable.model import Record, State

__all__ = ["RecordingControl", "call_off", "install", "install_everywhere"]

_PATIENCE_SECONDS = 1.0


class RecordingControl(Control):
    """Celery's control with the ledger told of what is revoked."""

    def revoke(self, task_id: Any, destination: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Tell workers to revoke a task (or a list of them), and the ledger, unless only some
        workers are to hear it.
        """
        # First: what is sent may be waited for, and the broker may be away.
        if destination is None:
            call_off(self.app, maybe_list(task_id) or [])
        return super().revoke(task_id, destination, *args, **kwargs)


def install_everywhere() -> None:
    """Make every app of this process that is made from now on tell the ledger."""
    make_part_by("control", "celery.app.control:Control", f"{__name__}:{RecordingControl.__name__}")


def install(app: Celery) -> None:
    """Make *app* tell the ledger.  Repeating it changes nothing.

    For an app with a control class of its own, or made before this package was imported.
    """
    give_part(app, "control", RecordingControl)


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
