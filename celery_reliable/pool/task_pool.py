"""The pool itself: Celery's prefork pool, whose processes can be given shifts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import get_pickled_exception
from kombu.utils.encoding import safe_repr, safe_str

from celery_reliable.compat.processes import ProcessLife, pool_of_lives
from celery_reliable.context import WorkerProcess
from celery_reliable.pool.shift import Left, Shift

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
    #: The tag of the message whose task has ended; "" for none.
    ended: str
    #: That whose task begins; None where the main process need not know.
    begun: Left | None
    #: In their order.
    events: list[_Event]


class Telling:
    """That of one shift.  It costs one message a task, and nothing where nobody wants to hear.

    The end of a task is told with the begin of the next, or with the end of the shift.
    """

    def __init__(self, shift: Shift, process: WorkerProcess) -> None:
        self._shift = shift
        self._process = process
        self._ended = ""
        self._event: _Event | None = None

    def begins(self, task: Any, found: Left, headers: Mapping[str, Any]) -> None:
        """Tell that a task begins."""
        tells_message, sends_events = self._shift.tells_messages, self._process.sends_events
        if not (tells_message or sends_events or self._ended):
            return
        begun = found if tells_message else None
        events = [self._event] if self._event is not None else []
        if sends_events and task.send_events:
            now = time.time()
            received = _fields_of_received(task.name, headers)
            events.append(("task-received", {**received, "timestamp": now}))
            events.append(("task-started", {"uuid": headers["id"], "timestamp": now}))
        self._tell(begun, events)

    def has_ended(self, task: Any, task_id: str, tag: str, outcome: tuple[int, Any, float]) -> None:
        """Note that it has ended."""
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
        told = Told(self._shift.token, self._ended, begun, events)
        self._ended, self._event = "", None
        own_life.tell(told)


def _fields_of_received(name: str, headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of Celery's event ``task-received`` of a task without ETA and expiry."""
    return {
        "uuid": headers["id"],
        "name": headers.get("shadow") or name,
        "args": headers.get("argsrepr", ""),
        "kwargs": headers.get("kwargsrepr", ""),
        "root_id": headers.get("root_id"),
        "parent_id": headers.get("parent_id"),
        "retries": headers.get("retries", 0),
        "eta": None,
        "expires": None,
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
    """Celery's prefork pool, in which a process goes on by itself while messages wait.

    While nothing waits it is a prefork pool: the main process waits for a message, and hands it to
    an idle process.  When more messages wait, idle processes get a *shift*: each takes messages,
    runs their tasks, and settles them, without the main process.  A shift ends when nothing waits,
    after a second, or when the main process calls it off.

    Only the ordinary tasks run like that: reliable ones, of queues in the ledger's own database,
    without ETA, expiry, rate, or the like.  All others go by the main process as in prefork.
    """

    #: What kind of pool it is, for all who have to know.
    kind = "prefork"

    def on_start(self) -> None:
        """Start the processes: each knows how many tasks it has run, and can tell of them."""
        self.Pool = pool_of_lives(own_life)
        super().on_start()


def kind_of(pool: Any) -> str:
    """Return of what kind a pool, or a class of pools, is: "prefork", "solo", or another module."""
    cls = pool if isinstance(pool, type) else type(pool)
    return str(getattr(cls, "kind", "") or cls.__module__.rpartition(".")[2])
