"""Where a row is, and every write of the columns of its task: each is one compare-and-set."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import router, transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from celery_reliable.contrib.django.rows.model import OPEN, TASK_FIELDS, TaskStatus
from celery_reliable.exceptions import RowTaken

__all__ = ["Begun", "Belongs", "Done", "RowPlace", "as_json"]

#: How often a row may change between a look and the write that goes by it.
_MOST_LOOKS = 10


@dataclass(frozen=True)
class Begun:
    """The attempt has the row; *writer* is its right to write."""

    row: Any
    writer: int


@dataclass(frozen=True)
class Done:
    """An earlier attempt of the same task has succeeded."""

    result: Any


@dataclass(frozen=True)
class Belongs:
    """The row is a later attempt's, or waits for another task."""

    task_id: str


@dataclass(frozen=True)
class RowPlace:
    """One row of a model, by its primary key."""

    model: Any
    pk: Any

    @property
    def using(self) -> str:
        """The database that it is written in."""
        return str(router.db_for_write(self.model))

    @property
    def owner(self) -> Any:
        """The model whose table has the columns of the task: with Django's inheritance of tables
        that may be a parent.
        """
        return self.model._meta.get_field("task_status").model

    def all_rows(self, model: Any = None) -> Any:
        """All rows of a model, by default of that which has the columns of the task."""
        return (model or self.owner)._base_manager.using(self.using)

    def rows(self) -> Any:
        """The row as a query of the table that has the columns of the task."""
        return self.all_rows().filter(pk=self.pk)

    def read(self) -> Any:
        """Return the row.  Raises the model's DoesNotExist."""
        return self.all_rows(self.model).get(pk=self.pk)

    # -- the publisher

    def ask(self, task_name: str, task_id: str, *, is_new: bool, keeps: bool) -> str:
        """Let the row wait for a task, and return the task's id; with *keeps* the id of the task
        that it waits for already, if it does.  Raises the model's DoesNotExist.

        *is_new*: no earlier task had this id.
        """
        rows = self.rows()
        if keeps:
            rows = rows.exclude(task_status__in=OPEN)
        else:
            rows = rows.exclude(task_id=task_id, task_status__in=OPEN)
        if rows.update(
            task_status=TaskStatus.WAITING,
            task_name=task_name,
            task_id=task_id,
            task_attempt=0,
            task_losses=0,
            task_published_ms=0 if is_new else None,
            task_writer=F("task_writer") + 1,
            task_seen_at=Now(),
            task_started_at=None,
            task_ended_at=None,
            task_result=None,
            task_error="",
            task_effects={},
        ):
            return task_id
        found = str(self.read().task_id)
        if found == task_id:
            # The task may have ended already, and is then published once more.
            self.rows().filter(task_id=task_id).update(task_published_ms=None)
        return found

    def note_published(self, task_id: str, published_ms: int) -> None:
        """Note when the ledger recorded the publication of a chosen id."""
        rows = self.rows().filter(task_id=task_id).exclude(task_published_ms=0)
        rows.update(task_published_ms=published_ms)

    # -- an attempt

    def begin(
        self,
        task_name: str,
        task_id: str,
        *,
        attempt: int,
        losses: int,
        is_current: Callable[[], bool],
    ) -> Begun | Done | Belongs:
        """Take the row for an attempt.

        *is_current* asks the ledger, after the row was read, in the cases in which the row cannot
        tell which of two is the later one.  Raises the model's DoesNotExist.
        """
        row = None
        for _ in range(_MOST_LOOKS):
            row = self.read()
            is_same = row.task_id == task_id
            if is_same and row.task_status == TaskStatus.SUCCEEDED:
                return Done(row.task_result)
            if not is_same and row.has_open_task:
                return Belongs(row.task_id)
            # Attempts of an earlier task with the same id may have any number.
            is_next = is_same and row.task_attempt < attempt and row.task_published_ms == 0
            if not is_next and not is_current():
                return Belongs(row.task_id)
            values = {
                "task_status": TaskStatus.RUNNING,
                "task_name": task_name,
                "task_id": task_id,
                "task_attempt": attempt,
                "task_losses": losses,
                "task_published_ms": row.task_published_ms if is_same else 0,
                "task_writer": row.task_writer + 1,
                "task_ended_at": None,
                "task_result": None,
                "task_error": "",
                "task_effects": row.task_effects if is_same else {},
            }
            if self._changed_since(row, task_started_at=Now(), task_seen_at=Now(), **values):
                for name, value in values.items():
                    setattr(row, name, value)
                row.task_started_at = row.task_seen_at = timezone.now()
                return Begun(row, values["task_writer"])
        assert row is not None
        return Belongs(row.task_id)

    def _changed_since(self, seen: Any, **values: Any) -> bool:
        # The status too: an effect ends the task without another writer.
        rows = self.rows().filter(task_writer=seen.task_writer, task_status=seen.task_status)
        return bool(rows.update(**values))

    def hold(self, writer: int) -> None:
        """Lock the row until the transaction ends.  Raises RowTaken when *writer* may not write."""
        # An update and no SELECT FOR UPDATE: SQLite has none, and refuses at once a transaction
        # that began by reading.  It changes nothing: the task may have ended by now.
        if not self.rows().filter(task_writer=writer).update(task_writer=writer):
            raise self._taken()

    def has_succeeded(self) -> bool:
        """Whether the row says so, as this transaction sees it."""
        return bool(self.rows().filter(task_status=TaskStatus.SUCCEEDED).exists())

    def write(self, writer: int, **values: Any) -> None:
        """Write columns of the user's.  Raises RowTaken when *writer* may not, and ValueError for a
        column of the task.
        """
        own = sorted(TASK_FIELDS.intersection(values))
        if own:
            raise ValueError(f"{', '.join(own)}: written by celery_reliable alone.")
        if self.owner is self.model:
            if not self.rows().filter(task_writer=writer).update(**values):
                raise self._taken()
            return
        with transaction.atomic(using=self.using):
            self.hold(writer)
            self.all_rows(self.model).filter(pk=self.pk).update(**values)

    def effects(self) -> dict[str, Any]:
        """Return the named effects that are committed, or of this transaction."""
        return dict(self.rows().values_list("task_effects", flat=True).get())

    def note_effects(self, writer: int, effects: dict[str, Any]) -> None:
        """Note them, in the transaction that has them."""
        self.rows().filter(task_writer=writer).update(task_effects=effects)

    def end(self, writer: int, status: str, *, result: Any = None, error: str = "") -> bool:
        """Note an outcome; False when *writer* may not write."""
        rows = self.rows().filter(task_writer=writer)
        if status != TaskStatus.SUCCEEDED:
            # What was committed as done stays so, whatever the body did after it.
            rows = rows.filter(task_status=TaskStatus.RUNNING)
        # A body that returns nothing leaves the result of its effect.
        results = {} if result is None else {"task_result": as_json(result)}
        return bool(
            rows.update(
                task_status=status,
                task_seen_at=None,
                task_ended_at=Now(),
                task_error=error,
                **results,
            )
        )

    def wait_on(self, writer: int) -> None:
        """Note that the task runs again later."""
        rows = self.rows().filter(task_writer=writer, task_status=TaskStatus.RUNNING)
        rows.update(task_status=TaskStatus.WAITING, task_seen_at=Now())

    def _taken(self) -> RowTaken:
        known = self.rows().values_list("task_id", flat=True).first()
        return RowTaken(
            f"{self.model._meta.label} {self.pk} is written by another attempt or task.",
            holder=known,
        )


def as_json(value: Any) -> Any:
    """Return *value*, or None if a column of JSON cannot hold it."""
    try:
        text = json.dumps(value, cls=DjangoJSONEncoder, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    # PostgreSQL has no such character.
    return None if "\\u0000" in text else value
