"""One attempt of a task with a row: it takes the row, runs the body, and writes what came of it.

Each write is a compare-and-set on ``task_writer``, so that a late attempt writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.utils import uuid
from django.db import Error as DatabaseError
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from django.utils import timezone

from celery_reliable.app import reliable_of
from celery_reliable.context import is_current, running
from celery_reliable.contrib.django.rows.model import (
    OPEN,
    WAITING,
    TaskStatus,
    ended,
    taken,
    wait_for,
)
from celery_reliable.exceptions import ConfigurationError, RowTaken, one_line
from celery_reliable.log import logger
from celery_reliable.scoped import scoped

__all__ = ["Effect", "RowAttempt", "current", "run"]

#: How often a row may change between a look and the write that goes by it.
_MOST_LOOKS = 10


class Effect:
    """What ``with self.effect(name) as effect:`` gives to its block.

    Attributes:
        result: None, or what the first attempt's block set; JSON.
    """

    def __init__(self, done: dict[str, Any] | None) -> None:
        self.result: Any = None if done is None else done.get("result")
        self._is_first = done is None
        self.was_asked = False

    @property
    def is_first(self) -> bool:
        """Whether no attempt of this task has committed the effect.  Only then do it."""
        self.was_asked = True
        return self._is_first


class RowAttempt:
    """An attempt that has its row, which was read as it was taken."""

    def __init__(self, task: Any, query: Any, row: Any) -> None:
        self.task, self.row, self.task_id = task, row, row.task_id
        self._query = query
        #: The row as a query, while this attempt may write it.
        self._mine = query.filter(task_writer=row.task_writer)
        #: Its effect is committed, with all transactions around it, and with it the task's success.
        self._is_done = False

    def hold(self) -> None:
        """Lock the row until the transaction ends.  Raises RowTaken."""
        # An update and no SELECT FOR UPDATE: SQLite has none, and refuses at once a transaction
        # that began by reading.  It changes nothing: the task may have ended by now.
        if not self._mine.update(task_writer=F("task_writer")):
            raise taken(self._query)

    @contextmanager
    def effect(self, name: str) -> Iterator[Effect]:
        """The transaction of a step, or without a name the one that ends the task.  Raises
        RowTaken.
        """
        with transaction.atomic(using=self._mine.db):
            self.hold()
            # The row tells, as its status is rolled back with what is around the block.
            if not name and self._mine.filter(task_status=TaskStatus.SUCCEEDED).exists():
                raise ConfigurationError(
                    f"Task {self.task.name} has two effects without a name. Such an effect ends "
                    "the task, so there is one at most: name them, with self.effect('charge')."
                )
            effect = Effect(self._effects().get(name))
            yield effect
            if not name:
                self._note(ended(TaskStatus.SUCCEEDED, result=effect.result))
                # A transaction around the block may still be rolled back.
                is_done = partial(setattr, self, "_is_done", True)
                transaction.on_commit(is_done, using=self._mine.db)
            elif not effect.was_asked:
                raise ConfigurationError(
                    f"The block of self.effect({name!r}) in task {self.task.name} does not ask "
                    "`if effect.is_first:`, so a second attempt would do it again."
                )
            elif effect.is_first:
                # Read again: the block may have noted effects of its own.
                done = {"attempt": self.row.task_attempt, "result": effect.result}
                self._mine.update(task_effects={**self._effects(), name: done})

    def _effects(self) -> dict[str, Any]:
        """Return the named effects that are committed, or of this transaction."""
        return dict(self._query.values_list("task_effects", flat=True).get())

    def _note(self, columns: dict[str, Any]) -> bool:
        """Write columns of the task; False when the row is another's."""
        rows = self._mine
        if columns["task_status"] != TaskStatus.SUCCEEDED:
            # What was committed as done stays so, whatever the body did after it.
            rows = rows.filter(task_status=TaskStatus.RUNNING)
        return bool(rows.update(**columns))

    def run(self, body: Callable[[], Any]) -> Any:
        """Run the body, return what it returns, and write what came of it.  Raises RowTaken."""
        self.row.task_hold = self.hold
        try:
            value = body()
            if not (self._note(ended(TaskStatus.SUCCEEDED, result=value)) or self._is_done):
                raise taken(self._query)
        except Exception as exc:
            if not isinstance(exc, RowTaken):
                self._give_up(exc)
            raise
        return value

    def _give_up(self, error: Exception) -> None:
        """Note what an attempt came to that ended with an exception."""
        live = running.get()
        # It was taken, has published its retry, or a canvas has its id.
        goes_on = live is not None and (live.is_closed or live.is_replaced)
        columns = ended(TaskStatus.FAILED, error=one_line(error))
        if isinstance(error, Retry) or (goes_on and isinstance(error, Ignore)):
            columns = WAITING
        elif isinstance(error, Reject):
            columns = WAITING if error.requeue else columns | {"task_status": TaskStatus.DEAD}
        try:
            self._note(columns)
        except DatabaseError as exc:
            # What the body raised says more.  The row is seen to from the ledger.
            logger.warning(
                "row_not_written name=%s id=%s error=%s", self.task.name, self.task_id, exc
            )


#: The attempt that runs in this thread or greenlet.
current: ContextVar[RowAttempt | None] = ContextVar("celery_reliable_row", default=None)


def run(task: Any, query: Any, task_id: str | None, body: Callable[[], Any]) -> Any:
    """Run the body of a task with its row.  *query*: of the row.  *task_id*: None of a task that is
    called directly.

    Returns what it returns; what an earlier attempt returned that has succeeded; or, without
    running it, ``{"skipped": id}`` where the row is another's: that task's id.
    """
    try:
        row = _begin(task, query, task_id)
        if row.task_status == TaskStatus.SUCCEEDED:
            return row.task_result
        attempt = RowAttempt(task, query, row)
        with scoped(current, attempt):
            return attempt.run(body)
    except RowTaken as exc:
        holder = exc.holder or ""
        logger.info("row_taken name=%s id=%s holder=%s", task.name, task_id or "", holder)
        return {"skipped": holder}


def _begin(task: Any, query: Any, task_id: str | None) -> Any:
    """Take the row for an attempt, and return it; as it is, if an earlier attempt has succeeded.

    Raises RowTaken, and the model's DoesNotExist.
    """
    live = running.get()
    if live is not None and live.claim.task_id != task_id:
        # Called by the body of another task.
        live = None
    if live is None and (task_id is None or task.request.is_eager):
        # Nobody has published it, or whoever did waits for it here.
        task_id = wait_for(query, task.name, task_id or uuid(), keeps=False)
    attempt, losses = (live.claim.attempt, live.claim.losses) if live is not None else (1, 0)
    for _ in range(_MOST_LOOKS):
        row = query.get()
        is_same = row.task_id == task_id
        if is_same and row.task_status == TaskStatus.SUCCEEDED:
            return row
        if not is_same and row.task_status in OPEN:
            break
        # Else the row cannot tell which of two attempts is the later one, and the ledger is asked,
        # after the row was read.
        is_next = is_same and row.task_attempt < attempt
        if not is_next and live is not None and not is_current(reliable_of(task.app).ledger, live):
            break
        values = {
            "task_status": TaskStatus.RUNNING,
            "task_name": task.name,
            "task_id": task_id,
            "task_attempt": attempt,
            "task_losses": losses,
            "task_writer": row.task_writer + 1,
            "task_ended_at": None,
            "task_result": None,
            "task_error": "",
            "task_effects": row.task_effects if is_same else {},
        }
        # The status too: an effect ends the task without another writer.
        rows = query.filter(task_writer=row.task_writer, task_status=row.task_status)
        if rows.update(task_started_at=Now(), task_seen_at=Now(), **values):
            for name, value in values.items():
                setattr(row, name, value)
            row.task_started_at = row.task_seen_at = timezone.now()
            return row
    raise taken(query)
