"""One attempt of a task with a row: it takes the row, runs the body, and writes what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery.exceptions import Ignore, Reject, Retry
from celery.utils import uuid
from django.db import Error as DatabaseError
from django.db import transaction

from celery_reliable.app import reliable_of
from celery_reliable.context import is_current, running
from celery_reliable.contrib.django.rows.model import TaskStatus
from celery_reliable.contrib.django.rows.places import Begun, Belongs, Done, RowPlace
from celery_reliable.exceptions import ConfigurationError, RowTaken, one_line
from celery_reliable.log import logger

__all__ = ["Effect", "RowAttempt", "current", "run"]


class Effect:
    """What ``with self.effect(name) as effect:`` gives to its block.

    Attributes:
        result: None, or what the first attempt's block set; JSON.
    """

    def __init__(self, name: str, done: dict[str, Any] | None) -> None:
        self.name = name
        self.result: Any = None if done is None else done.get("result")
        self._is_first = done is None
        self.was_asked = False

    @property
    def is_first(self) -> bool:
        """Whether no attempt of this task has committed the effect.  Only then do it."""
        self.was_asked = True
        return self._is_first


@dataclass
class RowAttempt:
    """An attempt that has its row."""

    task: Any
    task_id: str
    attempt: int
    place: RowPlace
    row: Any
    writer: int
    #: Its effect is committed, with all transactions around it, and with it the task's success.
    is_done: bool = False
    #: A block has ended the task, and a transaction around it may have been rolled back since.
    has_ended: bool = False

    def write(self, **values: Any) -> None:
        """Write columns of the user's, and set them on `row`.  Raises RowTaken."""
        self.place.write(self.writer, **values)
        for name, value in values.items():
            if not hasattr(value, "resolve_expression"):
                setattr(self.row, name, value)

    @contextmanager
    def effect(self) -> Iterator[Effect]:
        """The transaction that ends the task.  Raises RowTaken."""
        self._refuse_second(self.is_done)
        effect = Effect("", None)
        with transaction.atomic(using=self.place.using):
            self.place.hold(self.writer)
            # The row tells, as its status is rolled back with what is around the block.
            self._refuse_second(self.has_ended and self.place.has_succeeded())
            yield effect
            self.place.end(self.writer, TaskStatus.SUCCEEDED, result=effect.result)
            # A transaction around the block may still be rolled back.
            transaction.on_commit(self._is_committed, using=self.place.using)
            self.has_ended = True

    def _refuse_second(self, is_second: bool) -> None:
        if is_second:
            raise ConfigurationError(
                f"Task {self.task.name} has two effects without a name. Such an effect ends the "
                "task, so there is one at most: name them, with self.effect('charge')."
            )

    def _is_committed(self) -> None:
        self.is_done = True

    @contextmanager
    def named_effect(self, name: str) -> Iterator[Effect]:
        """The transaction of one step.  Raises RowTaken."""
        with transaction.atomic(using=self.place.using):
            self.place.hold(self.writer)
            effect = Effect(name, self.place.effects().get(name))
            yield effect
            if not effect.was_asked:
                raise ConfigurationError(
                    f"The block of self.effect({name!r}) in task {self.task.name} does not ask "
                    "whether it is the first, so a second attempt would do it again: "
                    f"`with self.effect({name!r}) as effect:` and, in it, `if effect.is_first:`."
                )
            if effect.is_first:
                # Read again: the block may have noted effects of its own.
                effects = self.place.effects()
                effects[name] = {"attempt": self.attempt, "result": effect.result}
                self.place.note_effects(self.writer, effects)

    def hold(self) -> None:
        """Lock the row in this transaction.  Raises RowTaken."""
        self.place.hold(self.writer)

    def finish(self, value: Any) -> bool:
        """Note the success; False when the row is another's by now."""
        if self.is_done and value is None:
            return True
        is_written = self.place.end(self.writer, TaskStatus.SUCCEEDED, result=value)
        return is_written or self.is_done

    def give_up(self, error: BaseException) -> None:
        """Note what an attempt came to that ended with an exception."""
        try:
            status = _status_after(self.task, error)
            if status == TaskStatus.WAITING:
                self.place.wait_on(self.writer)
            else:
                self.place.end(self.writer, status, error=one_line(error))
        except DatabaseError as exc:
            # What the body raised says more.  The row is seen to from the ledger.
            logger.warning(
                "row_not_written name=%s id=%s error=%s", self.task.name, self.task_id, exc
            )


#: The attempt that runs in this thread or greenlet.
current: ContextVar[RowAttempt | None] = ContextVar("celery_reliable_row", default=None)


def run(task: Any, place: RowPlace, body: Callable[[], Any]) -> Any:
    """Run the body of a task with its row.

    Returns what it returns; what an earlier attempt returned that has succeeded; or, without
    running it, ``{"skipped": id}`` where the row is another's: that task's id.
    """
    outer = current.get()
    if outer is not None and outer.place == place and outer.task.name == task.name:
        # A `run` that calls its base's.
        return body()
    begun = _begin(task, place)
    if isinstance(begun, Done):
        return begun.result
    if isinstance(begun, Belongs):
        return _skipped(task, begun.task_id)
    token = current.set(begun)
    begun.row.task_hold = begun.hold
    try:
        value = body()
        return value if begun.finish(value) else _skipped(task, place.read().task_id)
    except RowTaken as exc:
        return _skipped(task, exc.holder or "")
    except Exception as exc:
        begun.give_up(exc)
        raise
    finally:
        begun.row.task_hold = None
        current.reset(token)


def _begin(task: Any, place: RowPlace) -> RowAttempt | Done | Belongs:
    request = task.request
    live = running.get()
    if live is not None and live.claim.task_id != request.id:
        # Called by the body of another task.
        live = None
    task_id = request.id
    if live is None and (request.is_eager or request.called_directly):
        # Nobody has published it, or whoever did waits for it here.
        task_id = place.ask(task.name, task_id or uuid(), is_new=task_id is None, keeps=False)
    attempt, losses = (live.claim.attempt, live.claim.losses) if live is not None else (1, 0)
    begun = place.begin(
        task.name,
        task_id,
        attempt=attempt,
        losses=losses,
        is_current=lambda: live is None or is_current(reliable_of(task.app).ledger, live),
    )
    if not isinstance(begun, Begun):
        return begun
    return RowAttempt(task, task_id, attempt, place, begun.row, begun.writer)


def _skipped(task: Any, holder: str) -> dict[str, str]:
    logger.info("row_taken name=%s id=%s holder=%s", task.name, str(task.request.id or ""), holder)
    return {"skipped": holder}


def _status_after(task: Any, error: BaseException) -> str:
    live = running.get()
    # A canvas that replaced the task has its id.
    is_replaced = isinstance(error, Ignore) and live is not None and live.is_replaced
    status = TaskStatus.FAILED
    if isinstance(error, Retry) or is_replaced or _is_retried(task, error):
        status = TaskStatus.WAITING
    elif isinstance(error, Reject):
        status = TaskStatus.WAITING if error.requeue else TaskStatus.DEAD
    return status


def _is_retried(task: Any, error: BaseException) -> bool:
    """Whether Celery's ``autoretry_for``, which stands around the body, retries for an error."""
    retried = tuple(getattr(task, "autoretry_for", ()) or ())
    spared = tuple(getattr(task, "dont_autoretry_for", ()) or ())
    if not retried or not isinstance(error, retried) or isinstance(error, (*spared, Ignore)):
        return False
    limit = (getattr(task, "retry_kwargs", None) or {}).get("max_retries", task.max_retries)
    return limit is None or (task.request.retries or 0) < limit
