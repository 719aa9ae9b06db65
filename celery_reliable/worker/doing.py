"""What a worker does just now, as its main loop sees it: told with each beat, for operators.

Nobody decides by it.
"""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

from celery.worker import state

__all__ = ["Doing"]

#: Who consumes more than these tells of the first.
_MOST_QUEUES = 100


class _Unseen(Protocol):
    @property
    def n_unseen(self) -> int:
        """How many run of which Celery's state has no request."""


class Doing:
    """What the main loop saw last; any thread may ask."""

    def __init__(self) -> None:
        self._consumer: dict[str, Any] = {}
        self._begun = -1
        self._moved_at = time.monotonic()
        #: What processes of the pool run by themselves, of which Celery does not know.
        self.shifts: _Unseen | None = None

    def look(self, c: Any) -> None:
        """Note what Celery's consumer *c* consumes, and whether tasks begin; by the main loop."""
        # Tasks of every base, those that a pool has accepted.
        begun = self.begun
        if begun != self._begun:
            self._begun, self._moved_at = begun, time.monotonic()
        # None while a connection is made.
        queues = sorted(queue.name for queue in getattr(c.task_consumer, "queues", ()))
        self._consumer = {
            "queues": queues[:_MOST_QUEUES],
            "slots": int(getattr(c.pool, "num_processes", 0) or 0),
        }

    @property
    def begun(self) -> int:
        """How many tasks have begun here, of every base."""
        return int(state.all_total_count[0])

    @property
    def queues(self) -> list[str]:
        """What is consumed; empty before the first look."""
        return list(self._consumer.get("queues", ()))

    @property
    def is_free(self) -> bool:
        """Whether a slot is free, and nothing that was fetched is still to begin."""
        running, slots = len(state.active_requests), self._consumer.get("slots", 0)
        return running + self._n_shifts < slots and len(state.reserved_requests) <= running

    @property
    def _n_shifts(self) -> int:
        return self.shifts.n_unseen if self.shifts is not None else 0

    def told(self, turned_at: float, *, is_leaving: bool, orders: int = 0) -> str:
        """Return it as JSON, with what runs, and when the main loop turned last and a task began
        last, as seconds ago; empty before the first look.

        *is_leaving*: its shutdown has begun, so that it neither turns nor takes anything.
        *orders*: the version of the orders that it has heard of.
        """
        if not self._consumer:
            return ""
        now = time.monotonic()
        begun, running = self.begun, len(state.active_requests) + self._n_shifts
        moved_at = self._moved_at if begun == self._begun else now
        return json.dumps(
            {
                **self._consumer,
                # With `solo` the main loop runs it, and does not look meanwhile.
                "running": running,
                "fetched": max(running, len(state.reserved_requests) + self._n_shifts),
                "begun": begun,
                "turned": round(now - turned_at, 1),
                "moved": round(now - moved_at, 1),
                "leaving": is_leaving,
                "orders": orders,
                # By this host, to be compared with the server's.
                "clock": round(time.time(), 3),
            }
        )
