"""Where a row is, and what its publisher writes: each is one compare-and-set."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import router
from django.db.models import F
from django.db.models.functions import Now

from celery_reliable.contrib.django.rows.model import OPEN, TaskStatus
from celery_reliable.exceptions import RowTaken

__all__ = ["RowPlace", "as_json"]


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

    def taken(self) -> RowTaken:
        """Return the error of an attempt that may not write the row."""
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
