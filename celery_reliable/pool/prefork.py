"""The pool of every prefork worker: Celery's own, whose processes can be given shifts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.exceptions import Ignore, Reject, Retry
from celery.utils.serialization import get_pickled_exception
from kombu.utils.encoding import safe_repr, safe_str

from celery_reliable.compat.pool import ProcessLife, pool_of_lives
from celery_reliable.context import WorkerProcess
from celery_reliable.pool.shift import share_memory

__all__ = [
    "Event",
    "TaskPool",
    "Telling",
    "kind_of",
    "own_life",
]


#: That of this process.
own_life = ProcessLife()


#: A kind of Celery's events, and its fields.
Event = tuple[str, dict[str, Any]]


class Telling:
    """Sends Celery's events of one shift to the main process, which dispatches them.  It sends one
    message a task, and none where nobody wants events.

    The event of a task's end goes with those of the next begin, or with the end of the shift.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._events: list[Event] = []

    def begins(self, task: Any, headers: Mapping[str, Any]) -> None:
        """Send the events of a task's begin."""
        if self._process.sends_events and task.send_events:
            now = time.time()
            received = _fields_of_received(task.name, headers)
            self._events += [
                ("task-received", {**received, "timestamp": now}),
                ("task-started", {"uuid": headers["id"], "timestamp": now}),
            ]
        self.flush()

    def has_ended(self, task: Any, task_id: str, outcome: tuple[int, Any, float]) -> None:
        """Keep the event of a task's end."""
        if self._process.sends_events and task.send_events:
            event = _event_of_end(outcome)
            if event is not None:
                fields = {**event[1], "uuid": task_id, "timestamp": time.time()}
                self._events.append((event[0], fields))

    def was_fenced(self) -> None:
        """Forget the event of a task's end: its outcome does not count."""
        self._events = []

    def flush(self) -> None:
        """Send what is kept."""
        if self._events:
            own_life.tell(self._events)
            self._events = []


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


def _event_of_end(outcome: tuple[int, Any, float]) -> Event | None:
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
