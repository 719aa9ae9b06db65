"""The worker itself: Celery's WorkController."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from celery_reliable.compat.relied import Kept, Name, Part, Used, relies_on

__all__ = ["acquire_slot", "before_soft_shutdown", "free_slot", "hand_over_by", "waiting_for_slots"]

_WORKER = "celery.worker.worker:WorkController"
_POOL_STEP = "celery.worker.components:Pool.create"

HandOver = Callable[[Any], Any]

_NOBODY: deque[Any] = deque()


@relies_on(
    Name(f"{_WORKER}._process_task", takes=("req",), used_by=f"{_WORKER}._process_task_sem"),
    Used(by=_POOL_STEP, name="process_task"),
    Used(by=_POOL_STEP, name="_process_task_sem"),
    part=Part.WORKER,
)
def hand_over_by(w: Any, make: Callable[[HandOver], HandOver]) -> None:
    """Hand a worker's requests to its pool by the function that *make* returns for Celery's own.

    Call this after the pool is made, and before the consumer is.  Replaces ``process_task`` and
    ``_process_task`` of this one worker: Celery has no public hook between a request and its pool.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a plain task that was taken from a frozen worker
    runs there as well.
    """
    own = w._process_task
    ours = make(own)
    if w.process_task == own:
        w.process_task = ours
    w._process_task = ours


@relies_on(Used(by=_POOL_STEP, name="_quick_acquire"), part=Part.PREFORK)
def acquire_slot(w: Any, hand_over: Callable[[Any], Any], job: Any) -> None:
    """Call *hand_over* with *job* as soon as a slot of a worker's pool is free, and take that slot.

    Calls ``_quick_acquire``, which workers with an event loop have.  Checked on Celery 5.6.3 and
    5.7.0.  Without it a pool is handed more than it has processes.
    """
    w._quick_acquire(hand_over, job)


@relies_on(Used(by=_POOL_STEP, name="_quick_release"), part=Part.WORKER)
def free_slot(w: Any) -> None:
    """Give back the slot of a request that was not handed to the pool.

    Calls ``_quick_release``, which workers with an event loop have: only a job that has ended gives
    it back otherwise.  Checked on Celery 5.6.3 and 5.7.0.  Without it a worker that dropped a few
    requests runs no more.
    """
    # Only a worker with an event loop counts slots.
    if hasattr(w, "_quick_release"):
        w._quick_release()


@relies_on(
    Kept("kombu.asynchronous.semaphore:LaxBoundedSemaphore._waiting"),
    Used(by=_POOL_STEP, name="semaphore"),
    Used(by=f"{_WORKER}._process_task_sem", name="_quick_acquire"),
    part=Part.WORKER,
    is_promise=False,
)
def waiting_for_slots(w: Any) -> deque[Any]:
    """Return what waits until a slot of a worker's pool is free, the oldest first: a function of
    the worker's, and as its only positional argument the request that it hands to the pool.  Empty
    for workers that hand over all that they fetch.

    Reads ``_waiting`` of the worker's semaphore: Celery shows neither what waits there, nor for
    what.  Checked on Celery 5.6.3 and 5.7.0 with kombu 5.7.0.  Without it what waits behind a busy
    worker stays there.
    """
    waiting: deque[Any] = getattr(w.semaphore, "_waiting", _NOBODY)
    return waiting


@relies_on(
    Name(f"{_WORKER}.wait_for_soft_shutdown", used_by="celery.apps.worker:on_cold_shutdown"),
    part=Part.WORKER,
)
def before_soft_shutdown(w: Any, leave: Callable[[], None]) -> None:
    """Call *leave* before a worker sleeps through its soft shutdown.

    Replaces ``wait_for_soft_shutdown`` of this one worker: Celery's signal comes after it.  Checked
    on Celery 5.6.3 and 5.7.0.  Without it a worker counts as stalled during its soft shutdown, and
    what it runs is given to others.
    """
    sleep = w.wait_for_soft_shutdown

    def wait() -> None:
        leave()
        sleep()

    w.wait_for_soft_shutdown = wait
