"""`TaskRow`: the columns that say which task a row waits for, and what became of it; and what the
publisher of a row's task writes there: each write is one compare-and-set.

A row is a query there, that of its primary key.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, router, transaction
from django.db.models import F
from django.db.models.functions import Now

from celery_reliable.exceptions import RowTaken

__all__ = [
    "OPEN",
    "TASK_FIELDS",
    "WAITING",
    "TaskRow",
    "TaskRowQuerySet",
    "TaskStatus",
    "all_rows",
    "ended",
    "is_row",
    "missed",
    "not_seen_for",
    "taken",
    "wait_for",
]


class TaskStatus(models.TextChoices):
    """What becomes of a row's task."""

    #: Nobody has published a task for the row.
    NONE = "", "no task"
    #: It was published, or will be; or it was lost or is retried, and runs again.
    WAITING = "waiting"
    #: An attempt has begun.
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    #: The task has raised, and is not retried.
    FAILED = "failed"
    #: It was put aside without an outcome of its own: lost too often, out of time, unreadable.
    DEAD = "dead"
    #: An operator has called it off.
    REVOKED = "revoked"


#: Something is still to come.
OPEN = (TaskStatus.WAITING, TaskStatus.RUNNING)


class TaskRowQuerySet(models.QuerySet):
    """The queries of rows with tasks."""

    def unpublished(self, *, older_than_seconds: float = 60.0) -> Any:
        """Return rows that have waited for longer than that for a task nobody has begun.

        Their publisher may have been killed between its commit and its publication, or their task
        waits behind others.  `look_after_rows` asks the ledger which, and publishes the former.
        """
        return self.filter(missed(older_than_seconds))


def not_seen_for(seconds: float) -> models.Q:
    """Return what finds rows with an open task that nobody has looked at for so long."""
    # By the database's clock alone.  A time in the future was written before it stepped back.
    while_ = timedelta(seconds=seconds)
    return models.Q(task_seen_at__lt=Now() - while_) | models.Q(task_seen_at__gt=Now() + while_)


def missed(seconds: float) -> models.Q:
    """Return what finds rows of `TaskRowQuerySet.unpublished`."""
    return not_seen_for(seconds) & models.Q(task_status=TaskStatus.WAITING, task_attempt=0)


class TaskRow(models.Model):
    """A row with a task: derive your model from it, and the task from `RowTask`.

    The columns that begin with ``task_`` are written by the package alone, each time by one
    compare-and-set in the database.  `save` leaves them out, so a copy of the row that was read
    before its task ran sets nothing back.  Ask with ``Document.objects.filter(task_status=…)``.
    """

    task_status = models.CharField(
        "task's status",
        max_length=10,
        choices=TaskStatus.choices,
        default=TaskStatus.NONE,
        blank=True,
        editable=False,
    )
    #: The task that was published last.  An earlier one writes nothing any more.
    task_name = models.CharField(
        "task's name", max_length=255, default="", blank=True, editable=False
    )
    task_id = models.CharField(
        "task's id", max_length=255, default="", blank=True, editable=False, db_index=True
    )
    #: The number of the attempt that began last, and how many were lost.
    task_attempt = models.PositiveIntegerField("attempt", default=0, editable=False)
    task_losses = models.PositiveIntegerField("losses", default=0, editable=False)
    #: Grows with whoever may write the row: each publication, each attempt.  It is the fence.
    task_writer = models.PositiveBigIntegerField("writer", default=0, editable=False)
    #: When the row's task was last known to be on its way; null when nothing is to come.
    task_seen_at = models.DateTimeField("seen at", null=True, editable=False, db_index=True)
    task_started_at = models.DateTimeField("started at", null=True, editable=False)
    task_ended_at = models.DateTimeField("ended at", null=True, editable=False)
    #: What the task returned, as far as JSON can say it.
    task_result = models.JSONField(
        "task's result", null=True, editable=False, encoder=DjangoJSONEncoder
    )
    #: The error of a task that failed or is dead, in one line.
    task_error = models.TextField("task's error", default="", blank=True, editable=False)
    #: The named effects that are committed.
    task_effects = models.JSONField(
        "effects", default=dict, blank=True, editable=False, encoder=DjangoJSONEncoder
    )

    objects = TaskRowQuerySet.as_manager()

    #: Set on `RowTask.row`: locks the row, or raises RowTaken when a later attempt has it.
    task_hold: Callable[[], None] | None = None

    class Meta:
        """No table of its own."""

        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        """Save all but the columns of the task, which the package writes; of a new row all.

        On `RowTask.row`, while its attempt runs, raises RowTaken when a later attempt or another
        task has the row.
        """
        options |= zip(
            ("force_insert", "force_update", "using", "update_fields"), args, strict=False
        )
        is_here = options.get("using") in (None, self._state.db)
        if options.get("update_fields") is not None:
            # Django itself names some of ours, in `update_or_create`.
            own = [one for one in options["update_fields"] if one not in TASK_FIELDS]
            options["update_fields"] = own
        elif is_here and not self._state.adding and not options.get("force_insert"):
            options["update_fields"] = self._fields_of_the_user()
        if self.task_hold is None or not is_here:
            super().save(**options)
            return
        with transaction.atomic(using=self._state.db):
            self.task_hold()
            super().save(**options)

    def _fields_of_the_user(self) -> list[str]:
        without = TASK_FIELDS | self.get_deferred_fields()
        return [
            one.name
            for one in self._meta.concrete_fields
            if not one.primary_key
            and not getattr(one, "generated", False)
            and one.attname not in without
        ]


def is_row(model: type[models.Model]) -> bool:
    """Whether a model is derived from `TaskRow`, with the columns of the task in its own table, and
    not in that of a parent.
    """
    own = model._meta
    return issubclass(model, TaskRow) and own.get_field("task_status").model is own.concrete_model


TASK_FIELDS = frozenset(one.name for one in TaskRow._meta.local_fields)


#: What is written into a row whose task is to run, again or at all.
WAITING = {"task_status": TaskStatus.WAITING, "task_seen_at": Now()}


def all_rows(model: Any) -> Any:
    """Return all rows of a model, in the database that they are written in."""
    return model._base_manager.using(router.db_for_write(model))


def wait_for(row: Any, task_name: str, task_id: str, *, keeps: bool) -> str:
    """Let a row wait for a task, and return the task's id; with *keeps* the id of the task that it
    waits for already, if it does.  Raises the model's DoesNotExist.
    """
    rows = row.exclude(task_status__in=OPEN, **({} if keeps else {"task_id": task_id}))
    if rows.update(
        **WAITING,
        task_name=task_name,
        task_id=task_id,
        task_attempt=0,
        task_losses=0,
        task_writer=F("task_writer") + 1,
        task_started_at=None,
        task_ended_at=None,
        task_result=None,
        task_error="",
        task_effects={},
    ):
        return task_id
    return str(row.get().task_id)


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
