"""Rows whose task is open: what the ledger says of it.

What was committed and never published is published here; what was lost, buried or called off while
nobody could tell the row is written into it.  So no row says for ever that it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from celery import Celery, states
from django.apps import apps
from django.db import connections, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from kombu.exceptions import OperationalError

from celery_reliable.app import reliable_of
from celery_reliable.contrib.django.rows.model import OPEN, TaskRow, TaskStatus, not_seen_for
from celery_reliable.contrib.django.rows.places import RowPlace, as_json
from celery_reliable.contrib.django.rows.task import RowTask
from celery_reliable.exceptions import ReliableError, one_line
from celery_reliable.ledger import Look
from celery_reliable.log import logger
from celery_reliable.model import EndedTask, Reason, Record, State

__all__ = ["RowsReport", "look_after_rows", "row_models", "row_places"]

#: Rows that are looked at together: one round trip to the ledger, and one query.
_AT_ONCE = 500


@dataclass
class RowsReport:
    """What `look_after_rows` did: counts of rows.

    Attributes:
        looked_at: had an open task that nobody had seen for a while.
        published: were published, as nothing was known of their task.
        waiting: said that they run, or that all is over, and their task waits.
        ended: said that they wait or run, and their task had ended or was put aside.
        failed: could not be published now.
    """

    looked_at: int = 0
    published: int = 0
    waiting: int = 0
    ended: int = 0
    failed: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counts, for logs and programs."""
        return asdict(self)


def row_models() -> list[Any]:
    """Return the models of the project that are rows with tasks."""
    return [one for one in apps.get_models() if issubclass(one, TaskRow) and not one._meta.proxy]


def row_places() -> list[RowPlace]:
    """Return a place for each table of rows with tasks.  Of models that are derived from each
    other it is the parent's.
    """
    places = [RowPlace(one, None) for one in row_models()]
    return [place for place in places if place.owner is place.model]


def look_after_rows(
    app: Celery,
    *,
    older_than_seconds: float = 60.0,
    most: int = 10_000,
    task_ids: Sequence[str] | None = None,
) -> RowsReport:
    """Ask the ledger for the tasks that rows wait for, and do what follows.

    A row whose task nobody knows is published, under the same id; what lives is left alone.  May
    run as often as one likes, and beside itself.  Raises what the ledger raises.

    Args:
        app: the app of the tasks.
        older_than_seconds: rows are looked at when nobody has for so long.
        most: how many rows of each model at most; the others are the next time's.
        task_ids: look at the rows of these tasks alone, whenever somebody has.
    """
    report = RowsReport()
    if reliable_of(app).is_unprotected:
        # Nobody knows what becomes of a task.
        return report
    for place in row_places():
        is_meant = Q(task_status__in=OPEN) & not_seen_for(older_than_seconds)
        if task_ids is not None:
            is_meant = Q(task_id__in=task_ids)
        rows = place.all_rows().filter(is_meant)
        found = iter(list(rows.order_by("task_seen_at").values(*_COLUMNS)[:most]))
        while chunk := [_Row(place.model, one) for one in islice(found, _AT_ONCE)]:
            _look_at(app, _at_hand(place, chunk), report)
    return report


_COLUMNS = (
    "pk",
    "task_status",
    "task_name",
    "task_id",
    "task_attempt",
    "task_losses",
    "task_writer",
    "task_published_ms",
)


class _Row:
    """A row as it was read."""

    def __init__(self, model: Any, values: dict[str, Any]) -> None:
        self.place = RowPlace(model, values["pk"])
        self.status = values["task_status"]
        self.name = values["task_name"]
        self.id = values["task_id"]
        self.attempt = values["task_attempt"]
        self.losses = values["task_losses"]
        self.writer = values["task_writer"]
        self.published_ms = values["task_published_ms"]

    def is_of(self, published_ms: int) -> bool:
        """Whether what was published then is this row's task, and no earlier one with its id."""
        return self.published_ms is not None and published_ms >= self.published_ms

    def has(self, record: Record | EndedTask) -> bool:
        """Whether the record with the row's id is of a task that the row may mean: a chosen id may
        be another task's.
        """
        # An id that Celery made is nobody else's, and a replacement keeps the time.
        if self.published_ms in (0, record.published_ms):
            return True
        published_as = record.published_as if isinstance(record, Record) else ""
        return self.name in (record.name, published_as)

    def unchanged(self) -> Any:
        return self.place.rows().filter(
            task_id=self.id, task_writer=self.writer, task_status=self.status
        )

    def end(self, status: str, *, result: Any = None, error: str = "", losses: int = 0) -> bool:
        return bool(
            self.unchanged().update(
                task_status=status,
                task_seen_at=None,
                task_ended_at=Now(),
                task_result=as_json(result),
                task_error=error,
                task_losses=losses or self.losses,
                # An attempt that comes back late must not write into what has ended.
                task_writer=F("task_writer") + 1,
            )
        )


def _at_hand(place: RowPlace, rows: list[_Row]) -> list[_Row]:
    """Return the rows that can be written now.  A process may have frozen in its effect, which
    locks the row: whoever waited for that would be missing for all others, each time.
    """
    has = connections[place.using].features
    if not has.has_select_for_update_skip_locked:
        return rows
    with transaction.atomic(using=place.using):
        free = place.all_rows().filter(pk__in=[row.place.pk for row in rows])
        # A row that is merely referred to by what somebody inserts can be written.
        free = free.select_for_update(skip_locked=True, no_key=has.has_select_for_no_key_update)
        keys = set(free.values_list("pk", flat=True))
    # What has ended is no effect's any more, and is looked at once.
    return [row for row in rows if row.place.pk in keys or row.status not in OPEN]


def _look_at(app: Celery, rows: Sequence[_Row], report: RowsReport) -> None:
    report.looked_at += len(rows)
    looks = reliable_of(app).ledger.look_all([row.id for row in rows])
    alive = []
    for row, found in zip(rows, looks, strict=True):
        # While the id is another task's, the ledger knows nothing of the row's, and refuses it.
        look = found if found is not None and row.has(found.record) else None
        is_dead = look is not None and look.record.state is State.DEAD
        if look is not None and not is_dead and row.published_ms is None:
            row.place.note_published(row.id, look.record.published_ms)
        if row.status not in OPEN:
            _reopen(row, look, report)
        elif look is None or (is_dead and not row.is_of(look.record.published_ms)):
            _without_record(app, row, report)
        elif is_dead:
            status = TaskStatus.FAILED if look.reason == Reason.FAILED.value else TaskStatus.DEAD
            error = look.exception or look.record.cause
            report.ended += row.end(status, error=error, losses=look.record.losses)
        elif not _is_set_back(row, look, report):
            alive.append(row)
    if alive:
        seen = alive[0].place.all_rows()
        seen.filter(pk__in=[row.place.pk for row in alive], task_status__in=OPEN).update(
            task_seen_at=Now()
        )


def _reopen(row: _Row, look: Look | None, report: RowsReport) -> None:
    """Let a row wait again whose dead letter was replayed."""
    is_alive = look is not None and look.record.state is not State.DEAD
    if is_alive and row.status != TaskStatus.SUCCEEDED:
        report.waiting += row.unchanged().update(
            task_status=TaskStatus.WAITING, task_seen_at=Now(), task_ended_at=None
        )


def _is_set_back(row: _Row, look: Look, report: RowsReport) -> bool:
    """Whether a row said that it runs, and its attempt is over: the task waits."""
    is_over = look.record.state is not State.RUNNING or look.record.attempt > row.attempt
    if row.status != TaskStatus.RUNNING or not is_over:
        return False
    changed = row.unchanged().update(
        task_status=TaskStatus.WAITING, task_seen_at=Now(), task_losses=look.record.losses
    )
    report.waiting += changed
    return bool(changed)


def _without_record(app: Celery, row: _Row, report: RowsReport) -> None:
    """Write what became of a task that has ended; publish one of which nobody knows.

    The record of the row's id may be the dead letter of an earlier task, or another task's.
    """
    task = app.tasks.get(row.name)
    if not isinstance(task, RowTask):
        logger.warning("row_task_unknown name=%s id=%s", row.name, row.id)
        report.failed += 1
        return
    outcome, result = _outcome(app, task, row)
    if outcome in _STATUS_OF:
        is_success = outcome == states.SUCCESS
        error = "" if is_success else one_line(result) if result else outcome
        report.ended += row.end(
            _STATUS_OF[outcome], result=result if is_success else None, error=error
        )
        return
    # The numbers of its attempts begin anew; what an attempt of before writes is refused.
    if not row.unchanged().update(
        task_status=TaskStatus.WAITING,
        task_attempt=0,
        task_writer=F("task_writer") + 1,
        task_seen_at=Now(),
    ):
        return
    try:
        task.publish_missed(row.place.pk, row.id)
    except (ReliableError, OperationalError) as exc:
        logger.warning("row_not_published name=%s id=%s error=%s", task.name, row.id, exc)
        report.failed += 1
    else:
        logger.warning("row_published name=%s id=%s", row.name, row.id)
        report.published += 1


def _outcome(app: Celery, task: RowTask, row: _Row) -> tuple[str, Any]:
    """Return how the row's publication ended, and its result; PENDING where that is in doubt.

    An earlier task with the same id may have left a result and a history, too.
    """
    if row.published_ms is None:
        return states.PENDING, None
    ledger = reliable_of(app).ledger
    kept = ledger.ended_task(row.id)
    state, result = _stored(task, row.id)
    if kept is not None and not row.has(kept) and row.is_of(kept.published_ms):
        # Another task has had the id since, and what Celery has stored is that one's.
        return states.PENDING, None
    if kept is not None and kept.outcome in _STATUS_OF and row.is_of(kept.published_ms):
        return kept.outcome, result if state == kept.outcome else None
    if row.published_ms == 0:
        return state, result
    generation = ledger.passes.meta().get("generation")
    if generation is None or int(generation) > row.published_ms:
        # The server may have lost the record of a task that has not ended.
        return states.PENDING, None
    if not row.attempt and state not in (states.FAILURE, states.REVOKED):
        # It has ended, and no attempt of it has succeeded: this result is an earlier task's.
        return states.REVOKED, None
    return state, result


def _stored(task: RowTask, task_id: str) -> tuple[str, Any]:
    """Return state and result as Celery has stored them."""
    try:
        stored = task.AsyncResult(task_id)
        return str(stored.state), stored.result
    except NotImplementedError:
        # Results are not stored.
        return states.PENDING, None


_STATUS_OF = {
    states.SUCCESS: TaskStatus.SUCCEEDED,
    states.FAILURE: TaskStatus.FAILED,
    states.REVOKED: TaskStatus.REVOKED,
    "DISCARDED": TaskStatus.DEAD,
    "TRIMMED": TaskStatus.DEAD,
}
