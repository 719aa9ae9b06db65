"""How many attempts a worker's pool begins and ends: told with its heartbeat, for operators.

Celery counts in the main process what begins, and knows what runs.  What Celery calls a request's
`on_failure` for is counted here.  All else that has begun and does not run was successful, so no
success pays for being counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from celery import Celery, states
from celery.worker import state

from celery_reliable.options import is_reliable

__all__ = ["Counts", "Throughput", "given_back", "no_success"]

#: By Celery's state; "" is of attempts that were lost, stopped or taken.
_others: Counter[str] = Counter()
#: How many messages went back to their queues unbegun.
_given_back = 0
#: Pools call from threads of their own.
_lock = threading.Lock()


def no_success(how: str, count: int = 1) -> None:
    """Count attempts of reliable tasks that did not succeed: the state in which they ended; empty,
    they did not end.
    """
    with _lock:
        _others[how] += count


def given_back(count: int) -> None:
    """Count messages that went back to their queues, as they could not be begun here."""
    global _given_back
    _given_back += count


class Counts:
    """What this process has counted of the reliable tasks of one app, since it was started; of
    messages that were given back, all.
    """

    def __init__(self, app: Celery) -> None:
        # Not `app.tasks` with each count: Celery takes a lock there, and this is asked by a thread
        # that no fork waits for.  A child would find the lock taken, and hang as it starts.
        self._tasks = app.tasks
        self._last: dict[str, int] = {}

    def totals(self) -> Mapping[str, int]:
        """Return what began, what ended by state, and what was given back.  Never less than before;
        for one thread.
        """
        begun = sum(
            count
            for name, count in list(state.total_count.items())
            if is_reliable(self._tasks.get(name))
        )
        with _lock:
            others = dict(_others)
        try:
            running = sum(is_reliable(one.task) for one in list(state.active_requests))
        except RuntimeError:
            # Another thread began or ended one just now.
            return self._last
        succeeded = begun - running - sum(others.values())
        found = {"started": begun, "given_back": _given_back, f"ended:{states.SUCCESS}": succeeded}
        found.update({f"ended:{how}": count for how, count in others.items() if how})
        # What is counted in more than one step may be between two of them.
        self._last = {name: max(total, self._last.get(name, 0)) for name, total in found.items()}
        return self._last


class Throughput:
    """Which counts the ledger has been told of.  For the thread of the heartbeat."""

    def __init__(self, totals: Callable[[], Mapping[str, int]]) -> None:
        self._totals = totals
        #: When the worker registered under its name; and as the ledger has answered last.
        self._base: Mapping[str, int] | None = None
        self._heard: dict[str, int] = {}

    def begin(self) -> None:
        """The worker has registered: what was told before was told under another name."""
        if self._base is None:
            self._base = dict(self._totals())
        else:
            self._base = _sum(self._base, self._heard)
        self._heard = {}

    def told(self) -> dict[str, int]:
        """Return what has grown since the ledger has answered, as totals since the worker
        registered.
        """
        base = self._base or {}
        found = {name: total - base.get(name, 0) for name, total in self._totals().items()}
        return {name: total for name, total in found.items() if total > self._heard.get(name, 0)}

    def heard(self, told: Mapping[str, int]) -> None:
        """The ledger has counted what it was told."""
        self._heard.update(told)


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
