"""Time limits of what runs in shifts, in its process.  The main process keeps them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from celery_reliable.pool.shared import Limited, begin_limited, end_limited, limited, meant
from celery_reliable.pool.shift import Shift

__all__ = ["limits_heard", "run_limited"]

_T = TypeVar("_T")


@contextmanager
def limits_heard(shift: Shift) -> Iterator[None]:
    """Let no soft time limit interrupt another task than that whose limit it is."""
    if not shift.limits:
        yield
        return
    heard: Any = signal.getsignal(signal.SIGUSR1)

    def hear(number: int, frame: Any) -> None:
        # A signal that the main process has not sent for a limit is for whatever runs.
        since, task = meant(shift.slot), limited(shift.slot)
        if not since or (task is not None and task.since == since):
            heard(number, frame)

    signal.signal(signal.SIGUSR1, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, heard)


def run_limited(slot: int, number: int, limits: tuple[float, float], run: Callable[[], _T]) -> _T:
    """Run a task, and let the main process know since when."""
    begin_limited(slot, Limited(time.monotonic(), number, *limits))
    outcome = run()
    # Not where the process is being stopped: the main process looks what it was about.
    end_limited(slot)
    return outcome
