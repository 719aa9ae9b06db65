"""Rows whose task is open: what the ledger says of it.

What was committed and never published is published here; what was lost, buried or called off while
nobody could tell the row is written into it.  So no row says for ever that it runs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from celery import Celery, states
from django.apps import apps
from django.db import connections, transaction
from django.db.models import F
from django.db.models.functions import Now

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.rows.model import (
    OPEN,
    TASK_FIELDS,
    WAITING,
    TaskRow,
    TaskStatus,
    all_rows,
    ended,
    is_row,
    not_seen_for,
)
from celery_reliable.contrib.django.rows.task import RowTask
from celery_reliable.exceptions import one_line
from celery_reliable.ledger import Look
from celery_reliable.log import logger
from celery_reliable.model import Reason, State

__all__ = ["look_after_rows", "row_models"]

#: Rows that are looked at together: one round trip to the ledger, and one query.
_AT_ONCE = 500
#: Columns that say nothing of where the task is.
_LARGE = {"task_result", "task_error", "task_effects"}


def row_models() -> list[Any]:
    """Return the models of the project that are rows with tasks, one for each table of these."""
    return [one for one in apps.get_models() if is_row(one) and not one._meta.proxy]


def look_after_rows(
    app: Celery, *, older_than_seconds: float = 60.0, most: int = 10_000
) -> dict[str, int]:
    """Ask the ledger for the tasks that rows wait for, and do what follows.

    A row whose task nobody knows is published, under the same id; what lives is left alone.  May
    run as often as one likes, and beside itself.  Raises what the ledger raises.

    Returns counts of rows: ``looked_at`` (they had an open task that nobody had seen for a while),
    ``published`` (nothing was known of their task), ``waiting`` (they said that they run, and their
    task waits), ``ended`` (they said that they wait or run, and their task
    had ended or was put aside), ``failed`` (they could not be published now).

    Args:
        app: the app of the tasks.
        older_than_seconds: rows are looked at when nobody has for so long.
        most: how many rows of each model at most; the others are the next time's.
    """
    report = dict.fromkeys(("looked_at", "published", "waiting", "ended", "failed"), 0)
    if reliable_of(app).is_unprotected:
        # Nobody knows what becomes of a task.
        return report
    for model in row_models():
        late = all_rows(model).filter(not_seen_for(older_than_seconds), task_status__in=OPEN)
        rows = late.only("pk", *TASK_FIELDS - _LARGE)
        found = list(rows.order_by("task_seen_at")[:most])
        for first in range(0, len(found), _AT_ONCE):
            _look_at(app, model, found[first : first + _AT_ONCE], report)
    return report


def _at_hand(model: Any, rows: list[TaskRow]) -> list[TaskRow]:
    """Return the rows that can be written now.  A process may have frozen in its effect, which
    locks the row: whoever waited for that would be missing for all others, each time.
    """
    free = all_rows(model).filter(pk__in=[row.pk for row in rows])
    has = connections[free.db].features
    if not has.has_select_for_update_skip_locked:
        return rows
    with transaction.atomic(using=free.db):
        # A row that is merely referred to by what somebody inserts can be written.
        free = free.select_for_update(skip_locked=True, no_key=has.has_select_for_no_key_update)
        keys = set(free.values_list("pk", flat=True))
    return [row for row in rows if row.pk in keys]


def _look_at(app: Celery, model: Any, found: list[TaskRow], report: dict[str, int]) -> None:
    rows = _at_hand(model, found)
    report["looked_at"] += len(rows)
    looks = reliable_of(app).ledger.look_all([row.task_id for row in rows])
    seen = []
    for row, look in zip(rows, looks, strict=True):
        verdict = _verdict(app, row, look)
        if verdict is None:
            seen.append(row.pk)
            continue
        word, values = verdict
        read = {name: getattr(row, name) for name in ("task_id", "task_writer", "task_status")}
        # An attempt that comes back late must not write into what was written here.
        values["task_writer"] = F("task_writer") + 1
        # If nothing was changed, somebody else has written the row since it was read.
        if word == "failed" or all_rows(model).filter(pk=row.pk, **read).update(**values):
            if word == "published" and not app.tasks[row.task_name].publish_missed(row):
                word = "failed"
            report[word] += 1
    still_open = all_rows(model).filter(pk__in=seen, task_status__in=OPEN)
    still_open.update(task_seen_at=Now())


def _verdict(app: Celery, row: TaskRow, look: Look | None) -> tuple[str, dict[str, Any]] | None:
    """Return the word that the report counts a row under, and the columns to write into it; None
    if the row is right already.
    """
    if look is None:
        return _without_record(app, row)
    state = look.record.state
    losses = {"task_losses": look.record.losses}
    if state is State.DEAD:
        status = TaskStatus.FAILED if look.reason == Reason.FAILED.value else TaskStatus.DEAD
        return "ended", ended(status, error=look.exception) | losses
    is_over = state is not State.RUNNING or look.record.attempt > row.task_attempt
    if row.task_status == TaskStatus.RUNNING and is_over:
        return "waiting", WAITING | losses
    return None


def _without_record(app: Celery, row: TaskRow) -> tuple[str, dict[str, Any]]:
    """Return the same for a row whose task the ledger does not know: it has ended, or was never
    published.
    """
    task = app.tasks.get(row.task_name)
    if not isinstance(task, RowTask):
        logger.warning("row_task_unknown name=%s id=%s", row.task_name, row.task_id)
        return "failed", {}
    outcome, result = _outcome(app, task, row)
    if outcome == states.SUCCESS:
        return "ended", ended(TaskStatus.SUCCEEDED, result=result)
    if outcome in _STATUS_OF:
        return "ended", ended(_STATUS_OF[outcome], error=one_line(result) if result else outcome)
    # Attempts are counted from 1 again.
    return "published", {**WAITING, "task_attempt": 0}


def _outcome(app: Celery, task: RowTask, row: TaskRow) -> tuple[str, Any]:
    """Return how the row's task ended, and its result; PENDING where nobody knows."""
    stored, state, result = task.AsyncResult(row.task_id), states.PENDING, None
    # Where results are not stored.
    with suppress(NotImplementedError):
        state, result = str(stored.state), stored.result
    kept = reliable_of(app).ledger.ended_task(row.task_id)
    if kept is not None and kept.outcome in _STATUS_OF:
        return kept.outcome, result if state == kept.outcome else None
    return state, result


_STATUS_OF = {
    states.SUCCESS: TaskStatus.SUCCEEDED,
    states.FAILURE: TaskStatus.FAILED,
    states.REVOKED: TaskStatus.REVOKED,
    "DISCARDED": TaskStatus.DEAD,
    "TRIMMED": TaskStatus.DEAD,
}
