"""What a worker does just now, as its main loop sees it: told with each beat, for operators.

Nobody decides by it.
"""

from __future__ import annotations

import json
import time
from typing import Any

from celery.worker import state

__all__ = ["Doing"]

#: Who consumes more than these tells of the first.
_MOST_QUEUES = 100


class Doing:
    """What the main loop saw last; any thread may ask."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}
        self._begun = -1
        self._moved_at = time.monotonic()

    def look(self, c: Any) -> None:
        """Note what Celery's consumer *c* does; by the main loop."""
        now = time.monotonic()
        # Tasks of every base, those that a pool has accepted.
        begun = int(state.all_total_count[0])
        if begun != self._begun:
            self._begun, self._moved_at = begun, now
        # None while a connection is made.
        queues = sorted(queue.name for queue in getattr(c.task_consumer, "queues", ()))
        self._seen = {
            "queues": queues[:_MOST_QUEUES],
            "slots": int(getattr(c.pool, "num_processes", 0) or 0),
            "running": len(state.active_requests),
            "fetched": len(state.reserved_requests),
            "begun": begun,
        }

    def told(self, turned_at: float) -> str:
        """Return it as JSON, with when the main loop turned last and when a task began last, as
        seconds ago; empty before the first look.
        """
        if not self._seen:
            return ""
        now = time.monotonic()
        ages = {"turned": round(now - turned_at, 1), "moved": round(now - self._moved_at, 1)}
        return json.dumps({**self._seen, **ages})
