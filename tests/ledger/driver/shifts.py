"""Workers whose processes take their own messages: the package's own code, in the driver's pool."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from celery.app import trace

from celery_reliable.attempt import conclusion
from celery_reliable.context import PutOff
from celery_reliable.pool import N_SLOTS, child, shift
from celery_reliable.results import backend
from celery_reliable.worker import shifts

__all__ = ["claimed_in", "give", "patches"]

#: The driver's main processes share the memory in which shifts note how far they have come.
_SLOTS_EACH = 16


def give(host: Any) -> None:
    """Let the processes of a worker have shifts."""
    found = host.step.shifts
    found._hearing = _Deaf()
    number = host.world.hosts.index(host) * _SLOTS_EACH % N_SLOTS
    found.running._slots = deque(range(number, number + _SLOTS_EACH))


def claimed_in(host: Any, job: Any) -> list[str]:
    """Return the ids of the tasks that are claimed by the shift which is a pool's *job*."""
    indexes = host.world.observer.indexes
    running = [one for one in host.step.shifts.running if one.job is job]
    return [
        task_id
        for task_id, state in indexes.look().states.items()
        if state == "running"
        and any(one.holds(indexes.record(task_id).get("token", "")) for one in running)
    ]


def patches(world: Any) -> Iterator[Any]:
    """Yield what each process has for itself, and here all have together."""
    # What the pools of another world were told of is nothing to these.
    shift.share_memory()
    own = _OwnPutOff(world)
    for module in (child, conclusion, backend):
        yield mock.patch.object(module, "put_off", own)
    yield mock.patch.object(child, "app_or_default", return_value=world.app)
    yield mock.patch.object(shifts, "has_job", return_value=True)
    yield mock.patch.object(world.app, "use_fast_trace_task", True)
    yield _tasks_known(world.app)


class _Deaf:
    """Nobody wants to hear of what processes take."""

    wants_messages = False

    def __init__(self, *_: Any) -> None:
        """It hears nothing."""


class _OwnPutOff:
    """What the process that asks settles with its next taking."""

    def __init__(self, world: Any) -> None:
        object.__setattr__(self, "_world", world)
        object.__setattr__(self, "_found", {})

    def _own(self) -> PutOff:
        process = self._world.schedule.current.process
        found: PutOff = self._found.setdefault(process.pid, PutOff())
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own(), name, value)


@contextmanager
def _tasks_known(app: Any) -> Iterator[None]:
    """Let Celery's tracer know what it notes in each process of a prefork pool."""
    before = trace._localized[:]
    trace._localized[:] = [app._tasks, trace.prepare_accept_content(["json"]), "driver"]
    try:
        yield
    finally:
        trace._localized[:] = before
