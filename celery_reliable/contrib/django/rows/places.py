"""What the publisher of a row's task writes: each is one compare-and-set.

A row is a query here, that of its primary key.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import router
from django.db.models import F
from django.db.models.functions import Now

from celery_reliable.contrib.django.rows.model import OPEN, TaskStatus
from celery_reliable.exceptions import RowTaken

__all__ = ["WAITING", "all_rows", "ended", "note_published", "taken", "wait_for"]


#: What is written into a row whose task is to run, again or at all.
WAITING = {"task_status": TaskStatus.WAITING, "task_seen_at": Now()}


def all_rows(model: Any) -> Any:
    """Return all rows of a model, in the database that they are written in."""
    return model._base_manager.using(router.db_for_write(model))


def wait_for(row: Any, task_name: str, task_id: str, *, is_new: bool, keeps: bool) -> str:
    """Let a row wait for a task, and return the task's id; with *keeps* the id of the task that it
    waits for already, if it does.  Raises the model's DoesNotExist.

    *is_new*: no earlier task had this id.
    """
    rows = row.exclude(task_status__in=OPEN, **({} if keeps else {"task_id": task_id}))
    if rows.update(
        **WAITING,
        task_name=task_name,
        task_id=task_id,
        task_attempt=0,
        task_losses=0,
        task_published_ms=0 if is_new else None,
        task_writer=F("task_writer") + 1,
        task_started_at=None,
        task_ended_at=None,
        task_result=None,
        task_error="",
        task_effects={},
    ):
        return task_id
    found = str(row.get().task_id)
    if found == task_id:
        # The task may have ended already, and is then published once more.
        row.filter(task_id=task_id).update(task_published_ms=None)
    return found


def note_published(row: Any, task_id: str, published_ms: int) -> None:
    """Note when the ledger recorded the publication of a chosen id."""
    rows = row.filter(task_id=task_id).exclude(task_published_ms=0)
    rows.update(task_published_ms=published_ms)


def taken(row: Any) -> RowTaken:
    """Return the error of an attempt that may not write the row."""
    pk, known = row.values_list("pk", "task_id").first() or ("that is gone", None)
    return RowTaken(
        f"{row.model._meta.label} {pk} is written by another attempt or task.", holder=known
    )


def ended(status: str, *, result: Any = None, error: str = "") -> dict[str, Any]:
    """Return the columns of a row whose task has ended.  Without a result they leave that of an
    effect, if there is one.
    """
    of_result = {} if result is None else {"task_result": _json(result)}
    over = {"task_status": status, "task_seen_at": None, "task_ended_at": Now()}
    return {**over, "task_error": error, **of_result}


def _json(value: Any) -> Any:
    """Return *value*, or None if a column of JSON cannot hold it."""
    try:
        text = json.dumps(value, cls=DjangoJSONEncoder, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    # PostgreSQL has no such character.
    return None if "\\u0000" in text else value
