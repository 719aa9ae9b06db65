"""Revocations at the ledger: a task that nobody runs is forgotten, a running one is marked.

`RecordingControl` records what `app.control` revokes.  Workers remember what is revoked as long as
they live, and hear it only while they listen.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any
from uuid import UUID

from celery import Celery
from celery.app.control import Control
from celery.utils.functional import maybe_list

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import Found, Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import id_as_text
from celery_reliable.model import Record, State
from celery_reliable.recovery.announcements import try_to_store_revoked

__all__ = ["RecordingControl", "call_off", "call_off_task"]

#: For how long the ledger is asked, for each task, or each group of them: a caller waits.
_PATIENCE_SECONDS = 1.0
#: So many ids are looked up in one round trip, and messages of so many bytes are read in one.
_AT_ONCE, _MOST_BYTES = 1000, 1_000_000


def call_off(app: Celery, task_ids: Iterable[str]) -> list[str]:
    """Record the revocation of tasks: one that nobody runs is forgotten, and its result stored; one
    that runs is marked, so that it does not run again.

    What goes wrong is only logged, as a revocation is best effort in Celery too.  Returns the ids
    that the ledger was not told of because it is away.
    """
    left = dict.fromkeys(map(str, task_ids))
    try:
        reliable = reliable_of(app)
        if reliable.is_unprotected:
            return []
        ids = iter(list(left))
        while some := list(islice(ids, _AT_ONCE)):
            for found in reliable.ledger.find_in_groups(
                some, most_bytes=_MOST_BYTES, patience_seconds=_PATIENCE_SECONDS
            ):
                _call_off_found(app, reliable.ledger, found)
                left.pop(found.task_id)
    except Exception as exc:
        # Workers hear of the revocation all the same.
        logger.error("revocation_not_recorded error=%s", exc)
        return list(left) if isinstance(exc, LedgerUnavailable) else []
    return []


def _call_off_found(app: Celery, ledger: Ledger, found: Found) -> None:
    """Record one.  Raises LedgerUnavailable: the others would wait for the same server."""
    record = None
    try:
        record = found.record
        if record is not None and (record.is_to_run or record.state is State.RUNNING):
            call_off_task(app, ledger, record, patience_seconds=_PATIENCE_SECONDS)
    except LedgerUnavailable:
        raise
    except Exception as exc:
        name = record.name if record is not None else ""
        logger.error("revocation_not_recorded name=%s id=%s error=%s", name, found.task_id, exc)


def call_off_task(
    app: Celery,
    ledger: Ledger,
    record: Record,
    *,
    by: str = "",
    if_running: str = "finish",
    patience_seconds: float | None = None,
) -> answers.CancelAnswer:
    """Record the revocation of one task that was seen to run, or to wait for that.

    *by*: who revokes it; then what happened to it is kept.  *if_running*: "finish", "stop" or
    "kill".  Raises LedgerUnavailable and
    LedgerRefused.
    """
    if record.state is not State.RUNNING:
        # First, as without its record nobody would find the task again.
        try_to_store_revoked(app, record)
    answer = ledger.revoke(
        record.task_id,
        if_running=if_running,
        by=by,
        is_kept=bool(by),
        patience_seconds=patience_seconds,
    )
    if isinstance(answer, answers.Cancelled) and record.state is State.RUNNING:
        # Its attempt has ended meanwhile and was to be followed by another.
        try_to_store_revoked(app, record)
    return answer


class RecordingControl(Control):
    """Celery's control with the ledger told of what is revoked."""

    def revoke(self, task_id: Any, destination: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Tell workers to revoke a task (or a list of them), and the ledger, unless only some
        workers are to hear it.
        """
        # Workers know a task by the text of its id.
        ids = (str, bytes, UUID)
        if isinstance(task_id, ids):
            task_id = id_as_text(task_id)
        else:
            task_id = [id_as_text(one) if isinstance(one, ids) else one for one in task_id or []]
        # First: what is sent may be waited for, and the broker may be away.
        if destination is None:
            call_off(self.app, maybe_list(task_id) or [])
        return super().revoke(task_id, destination, *args, **kwargs)
