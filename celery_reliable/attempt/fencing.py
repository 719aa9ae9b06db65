"""Before a body begins, and before its outcome leaves the process: does the attempt still count?

A worker that was frozen or cut off for longer than its lease may have been declared dead, and
its tasks run elsewhere.  Its children then begin no body, publish no callbacks and store no result.
While the lease is fresh the answer is known without asking: the main process shares the deadline in
memory.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any

from celery import Celery, current_task
from celery.exceptions import Ignore, Retry

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.context import RunningAttempt, current_worker, is_current, running
from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger import answers

__all__ = [
    "Interruptible",
    "Uninterrupted",
    "guarded",
    "is_touched",
    "time_to_run",
]

#: How billiard tells a child that its soft time limit is up.
_SOFT_LIMIT = signal.SIGUSR1
_MASK = {_SOFT_LIMIT}
#: The warning comes with a quarter of the time left, and at most so many seconds before the end.
_LONGEST_NOTICE_SECONDS = 30.0
#: How often the deadline is read again after a warning, as a touch moves it.
_LOOK_SECONDS = 0.25


def _may_mask() -> bool:
    return threading.current_thread() is threading.main_thread()


# Each task enters both of these, and a class takes a third of the time of a generator.


class Uninterrupted:
    """Keep the soft time limit out of what we do around a body.

    It is a signal that raises wherever the process is: in the middle of a settlement it would leave
    a finished task running for ever.  One that came too late for the body is dropped.
    """

    def __enter__(self) -> None:
        self._has_blocked = _may_mask() and _SOFT_LIMIT not in signal.pthread_sigmask(
            signal.SIG_BLOCK, _MASK
        )

    def __exit__(self, *exc_info: object) -> None:
        if self._has_blocked:
            _drop_pending()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _MASK)


def _drop_pending() -> None:
    if _SOFT_LIMIT in signal.sigpending():
        signal.sigwait(_MASK)


class Interruptible:
    """Let the soft time limit through while the body runs."""

    def __enter__(self) -> None:
        self._before: Iterable[int] | None = None
        if running.get() is not None and _may_mask():
            # A limit that was up while the ledger kept us waiting is not the body's fault.
            _drop_pending()
            self._before = signal.pthread_sigmask(signal.SIG_UNBLOCK, _MASK)

    def __exit__(self, *exc_info: object) -> None:
        if self._before is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


@contextmanager
def time_to_run(task: Any, attempt: RunningAttempt, seconds: float) -> Iterator[None]:
    """Warn while the body runs, before its ``time_to_run_seconds`` are up.

    It is the ledger that takes the attempt away, and not this.
    """
    attempt.time_to_run_seconds = seconds
    attempt.deadline = clock.now() + seconds
    notice = min(seconds / 4, _LONGEST_NOTICE_SECONDS)
    done = threading.Event()
    claim = attempt.claim

    def watch() -> None:
        warned, pause = None, 0.0
        while not done.wait(pause):
            # A touch moves the deadline; the next warning comes before the new one.
            deadline = attempt.deadline or 0.0
            left = deadline - clock.now()
            if left <= notice and warned != deadline:
                warned = deadline
                events.task_running_out(
                    task=task, task_id=claim.task_id, attempt=claim.attempt, seconds_left=left
                )
            pause = _LOOK_SECONDS if warned == deadline else max(left - notice, 0.01)

    threading.Thread(
        target=copy_context().run, args=(watch,), name="celery-reliable-time-to-run", daemon=True
    ).start()
    try:
        yield
    finally:
        done.set()


def is_touched(app: Celery, attempt: RunningAttempt) -> bool:
    """Start the time to run of an attempt anew, if it has one; False when the attempt is not the
    current one any more.

    Raises LedgerUnavailable and LedgerRefused.
    """
    seconds, touched_at = attempt.time_to_run_seconds, clock.now()
    if not seconds:
        return True
    answer = reliable_of(app).ledger.touch(attempt.claim, time_to_run_ms=int(seconds * 1000))
    if not isinstance(answer, answers.Touched):
        return False
    attempt.deadline = touched_at + seconds
    return True


def guarded(body: Any) -> Any:
    """Return a task's ``run`` that ends with Ignore when its attempt no longer counts."""
    function = body.__func__ if isinstance(body, staticmethod) else body

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _raise_if_late()
        try:
            with Interruptible():
                result = function(*args, **kwargs)
        except Retry:
            # The retry is published, which the ledger allowed to the current attempt only.
            raise
        except Exception as exc:
            _raise_if_taken(exc)
            raise
        _raise_if_taken(None)
        return result

    return staticmethod(run) if isinstance(body, staticmethod) else run


def _raise_if_late() -> None:
    """Let no body begin of an attempt that has stood still since it was claimed, and was taken."""
    attempt, worker = running.get(), current_worker()
    # A worker that was declared dead registers anew, while its old attempts may still run.
    if attempt and worker and not worker.surely_holds(attempt.claim.worker):
        # If the ledger refuses to say so, the attempt does as if it had not asked.
        with suppress(LedgerRefused):
            _raise_if_taken(None)


def _raise_if_taken(cause: Exception | None) -> None:
    attempt, worker = running.get(), current_worker()
    if attempt is None or attempt.is_closed or worker is None:
        return
    # An attempt that exceeds its time to run is taken from a worker that lives.
    if attempt.deadline is None and worker.surely_holds(attempt.claim.worker):
        return
    if is_current(reliable_of(current_task.app).ledger, attempt):
        return
    attempt.fence(current_task)
    raise Ignore(f"attempt {attempt.claim.attempt} was taken from this worker") from cause
