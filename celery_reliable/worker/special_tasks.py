"""Which tasks of a worker are begun in a way of their own, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from celery.utils.imports import symbol_by_name

from celery_reliable.context import WorkerProcess
from celery_reliable.options import is_limited, is_reliable
from celery_reliable.publishing import MAY_WAIT, TWINS
from celery_reliable.worker.request import ReliableRequest

__all__ = ["SpecialNames", "SpecialTasks"]


@dataclass(frozen=True)
class SpecialNames:
    """The names of a worker's reliable tasks that are begun in a way of their own."""

    #: What their messages tell is not enough to claim them: an order may hold them back, they have
    #: a rate or a time to run, or are left out.  They are claimed as they begin.
    cold: tuple[str, ...]
    #: As in `Shift`.
    left_out: frozenset[str]
    shown: frozenset[str]
    limits: Mapping[str, tuple[float, float]]


class SpecialTasks:
    """Those of one worker.  For the main loop.

    Each taking is told of all tasks, so what is known of them is kept until an order is made or
    ends, a task is added, or a limit is set.
    """

    def __init__(self, w: Any, process: WorkerProcess) -> None:
        self._worker = w
        self._process = process
        self._seen: tuple[Any, ...] = ()
        self._names = SpecialNames((), frozenset(), frozenset(), {})

    def forget(self) -> None:
        """Look anew: a remote command has changed a limit, or Celery began anew."""
        self._seen = ()

    def names(self) -> SpecialNames:
        """Return the names; the same while nothing changes."""
        w, orders = self._worker, self._process.orders
        seen = (orders, len(w.app.tasks), *w.consumer.task_buckets.values())
        if seen != self._seen:
            tasks = [one for one in w.app.tasks.values() if is_reliable(one)]
            limits = {one.name: self._limits_of(one) for one in tasks}
            self._names = SpecialNames(
                # The name that messages have.
                tuple(
                    TWINS.get(one.name, one.name)
                    for one in tasks
                    if self._is_cold(one) or self._is_left_out(one)
                ),
                frozenset(one.name for one in tasks if self._is_left_out(one)),
                frozenset(
                    one.name for one in tasks if symbol_by_name(one.Request) is not ReliableRequest
                ),
                {name: both for name, both in limits.items() if any(both)},
            )
            self._seen = seen
        return self._names

    def may_wait(self, headers: Mapping[str, Any]) -> bool:
        """Whether a message's task may have to wait before its body begins, so that it is claimed
        only then: for its moment, for a worker that it names, or for an order.  Of such a message
        `take` claims nothing either.
        """
        is_cold = headers.get("task") in self.names().cold
        return bool(is_cold or any(headers.get(one) for one in MAY_WAIT))

    def _limits_of(self, task: Any) -> tuple[float, float]:
        """Return a task's soft and hard time limits, in seconds; 0: none."""
        w = self._worker
        return (
            task.soft_time_limit or w.soft_time_limit or 0.0,
            task.time_limit or w.time_limit or 0.0,
        )

    def _is_cold(self, task: Any) -> bool:
        return bool(
            is_limited(task)
            or getattr(type(task), "time_to_run_seconds", None)
            or self._process.orders.of_task(task.name)
        )

    def _is_left_out(self, task: Any) -> bool:
        has_own = task.Strategy != "celery.worker.strategy:default"
        return bool(has_own or self._worker.consumer.task_buckets.get(task.name))
