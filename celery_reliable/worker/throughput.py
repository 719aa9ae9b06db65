"""How many attempts a worker's pool processes, and how many of them fail: told with its heartbeat,
for operators.

Celery counts in the main process what begins, and knows what runs.  What Celery calls a request's
`on_failure` for is counted here.  So no success pays for being counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from celery import Celery
from celery.worker import state

from celery_reliable.options import is_reliable

__all__ = ["Throughput", "count"]

_counted: Counter[str] = Counter()
#: Pools call from threads of their own.
_lock = threading.Lock()


def count(what: Literal["failed", "not_ended"], n: int = 1) -> None:
    """Count attempts of reliable tasks that ended in a failure ("failed"), or what Celery counts as
    begun and is not processed ("not_ended"): attempts that were lost, stopped or taken, and
    deliveries that were not run.
    """
    with _lock:
        _counted[what] += n


class Throughput:
    """What this process has counted of one app's reliable tasks, and what of that the ledger has
    been told.  For the thread of the heartbeat.
    """

    def __init__(self, app: Celery) -> None:
        # Not `app.tasks` with each count: Celery takes a lock there, and this is asked by a thread
        # that no fork waits for.  A child would find the lock taken, and hang as it starts.
        self._tasks = app.tasks
        self._last: Counter[str] = Counter()
        #: When the worker registered under its name; and as the ledger has answered last.
        self._base: Counter[str] | None = None
        self._heard: Counter[str] = Counter()

    def _totals(self) -> Counter[str]:
        """Return how many attempts were processed since this process was started, and how many of
        them failed.  Never less than before.
        """
        begun = sum(
            count
            for name, count in list(state.total_count.items())
            if is_reliable(self._tasks.get(name))
        )
        with _lock:
            counted = _counted.copy()
        try:
            running = sum(is_reliable(one.task) for one in list(state.active_requests))
        except RuntimeError:
            # Another thread began or ended one just now.
            return self._last
        # What is counted in more than one step may be between two of them: so the greater counts.
        self._last |= Counter(
            processed=begun - running - counted["not_ended"], failed=counted["failed"]
        )
        return self._last

    def begin(self) -> None:
        """The worker has registered: what was told before was told under another name."""
        base = self._totals() if self._base is None else self._base + self._heard
        self._base, self._heard = base.copy(), Counter()

    def told(self) -> dict[str, int]:
        """Return what has grown since the ledger has answered, as totals since the worker
        registered.
        """
        found = self._totals() - (self._base or Counter())
        return {name: total for name, total in found.items() if total > self._heard[name]}

    def heard(self, told: Mapping[str, int]) -> None:
        """The ledger has counted what it was told."""
        self._heard |= Counter(told)
