"""Which reliable tasks are left out of a quick way, whatever their messages say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_reliable.context import WorkerProcess
from celery_reliable.options import is_reliable
from celery_reliable.orders import Orders
from celery_reliable.publishing import TWINS

__all__ = ["LeftOut"]


class LeftOut:
    """The names of the reliable tasks of a worker that *is_left_out* says true of, for the main
    loop; among them Celery's own tasks whose twins are reliable.

    They are asked for with each message that finds an idle process, so they are kept until an order
    is made or ends, a task is added, or a rate limit is set.
    """

    def __init__(self, process: WorkerProcess, is_left_out: Callable[[Any], bool]) -> None:
        self._process = process
        self._is_left_out = is_left_out
        #: By what the names were found: orders, how many tasks there are, and their rate limits.
        self._seen: tuple[Orders, int, list[Any]] | None = None
        self._names: list[str] = []

    def names(self, c: Any) -> list[str]:
        """Return the names, with the worker's consumer *c*; the same list while nothing changes."""
        orders, tasks = self._process.orders, c.app.tasks
        seen, now = self._seen, (orders, len(tasks), list(c.task_buckets.values()))
        if seen is None or seen[0] is not orders or seen[1:] != now[1:]:
            self._names = [
                # The name that messages have.
                TWINS.get(one.name, one.name)
                for one in tasks.values()
                if is_reliable(one) and (one.name in TWINS or self._is_left_out(one))
            ]
            self._seen = now
        return self._names
