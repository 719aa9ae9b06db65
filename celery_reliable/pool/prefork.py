"""The pool of every prefork worker: Celery's own, whose processes can be given shifts."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import get_pickled_exception
from kombu.utils.encoding import safe_repr, safe_str

from celery_reliable.compat.pool import ProcessLife, pool_of_lives
from celery_reliable.context import WorkerProcess
from celery_reliable.pool.shift import Left, Shift, share_memory

__all__ = [
    "TaskPool",
    "Telling",
    "Told",
    "kind_of",
    "own_life",
]


#: That of this process.
own_life = ProcessLife()


#: A kind of Celery's events, and its fields.
_Event = tuple[str, dict[str, Any]]


class Told(NamedTuple):
    """What is told at once."""

    #: The token of the shift.
    shift: str
    #: Of the process.
    pid: int
    #: The tag of the message whose task has ended; "" for none.
    ended: str
    #: That whose task begins; None where the main process need not know.
    begun: Left | None
    #: In their order.
    events: list[_Event]
    #: What Celery's tracer has returned for what has ended, where its request is to see it.
    outcome: Any = None


class Telling:
    """That of one shift.  It costs one message a task, and nothing where nobody wants to hear.

    The end of a task is told with the begin of the next, or with the end of the shift.
    """

    def __init__(self, shift: Shift, process: WorkerProcess) -> None:
        self._shift = shift
        self._process = process
        self._ended = ""
        self._event: _Event | None = None
        self._outcome: Any = None

    def begins(self, task: Any, found: Left, headers: Mapping[str, Any], *, is_shown: bool) -> None:
        """Tell that a task begins.  *is_shown*: its request is the user's, and sends the events of
        its begin and its end.
        """
        tells_message = self._shift.tells_messages or is_shown
        sends_events = self._process.sends_events
        if not (tells_message or sends_events or self._ended):
            return
        begun = found if tells_message else None
        events = [self._event] if self._event is not None else []
        if sends_events and task.send_events:
            now = time.time()
            received = _fields_of_received(task.name, headers)
            events.append(("task-received", {**received, "timestamp": now}))
            if not is_shown:
                events.append(("task-started", {"uuid": headers["id"], "timestamp": now}))
        self._tell(begun, events)

    def has_ended(
        self,
        task: Any,
        task_id: str,
        tag: str,
        outcome: tuple[int, Any, float],
        *,
        is_shown: bool,
    ) -> None:
        """Note that it has ended."""
        if is_shown:
            self._ended, self._outcome = tag, outcome
            return
        sends_events = self._process.sends_events and task.send_events
        if not (self._shift.tells_messages or sends_events):
            return
        self._ended = tag
        event = _event_of_end(outcome) if sends_events else None
        if event is not None:
            self._event = event[0], {**event[1], "uuid": task_id, "timestamp": time.time()}

    def was_fenced(self) -> None:
        """Note that the outcome of what has ended does not count."""
        self._event = None

    def close(self) -> None:
        """Tell what is to be told yet."""
        if self._ended:
            self._tell(None, [self._event] if self._event is not None else [])

    def _tell(self, begun: Left | None, events: list[_Event]) -> None:
        told = Told(self._shift.token, os.getpid(), self._ended, begun, events, self._outcome)
        self._ended, self._event, self._outcome = "", None, None
        own_life.tell(told)


def _fields_of_received(name: str, headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of Celery's event ``task-received``.  What the ledger knows has no ETA."""
    return {
        "uuid": headers["id"],
        "name": headers.get("shadow") or name,
        "args": headers.get("argsrepr", ""),
        "kwargs": headers.get("kwargsrepr", ""),
        "root_id": headers.get("root_id"),
        "parent_id": headers.get("parent_id"),
        "retries": headers.get("retries", 0),
        "eta": None,
        "expires": headers.get("expires"),
    }


def _event_of_end(outcome: tuple[int, Any, float]) -> _Event | None:
    """Return Celery's event of a task's end, by what `run_as_prefork` has returned; None where
    Celery sends none.
    """
    has_failed, value, runtime = outcome
    if not has_failed:
        return "task-succeeded", {"result": value, "runtime": runtime}
    # billiard unwraps it on the way to the main process.
    error = getattr(value.exception, "exc", value.exception)
    if isinstance(error, Ignore | Reject):
        return None
    if isinstance(error, Retry):
        told = safe_repr(error.exc)
        return "task-retried", {"exception": told, "traceback": safe_str(value.traceback)}
    told = safe_repr(get_pickled_exception(error))
    return "task-failed", {"exception": told, "traceback": value.traceback}


class TaskPool(PreforkPool):
    """Celery's prefork pool, whose processes take messages of reliable tasks by themselves.

    The main process waits for messages, and gives an idle process a *shift* when one has come: the
    process takes messages, runs their tasks and settles them, until nothing waits, a second is
    over, or the main process calls the shift off.  What is no message of a reliable task the
    process leaves to the main process, which does with it as in Celery.

    Every prefork worker has it.  Where queues and ledger are not in one database no process has
    shifts, and it is Celery's pool.
    """

    #: What kind of pool it is, for all who have to know.
    kind = "prefork"

    def on_start(self) -> None:
        """Start the processes: each knows how many tasks it has run, and can tell of them."""
        share_memory()
        self.Pool = pool_of_lives(own_life)
        super().on_start()


def kind_of(pool: Any) -> str:
    """Return of what kind a pool, or a class of pools, is: "prefork", "solo", or another module."""
    cls = pool if isinstance(pool, type) else type(pool)
    return str(getattr(cls, "kind", "") or cls.__module__.rpartition(".")[2])
