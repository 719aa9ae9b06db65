"""Before an outcome leaves the process: does the attempt still count?

A worker that was frozen or cut off for longer than its lease may have been declared dead, and
its tasks run elsewhere.  Its children then publish no callbacks and store no result.  While the
lease is fresh the answer is known without asking: the main process shares the deadline in memory.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from celery.exceptions import Ignore, Retry

from celery_reliable import clock, events
from celery_reliable.application import reliable_of
from celery_reliable.forgotten import is_forgotten
from celery_reliable.ledger import FOREVER, Ledger
from celery_reliable.model import State
from celery_reliable.process import RunningAttempt, current_worker, running

__all__ = ["guarded", "is_current", "time_to_run", "uninterrupted"]

#: How billiard tells a child that its soft time limit is up.
_SOFT_LIMIT: int = getattr(signal, "SIGUSR1", 0)
_HAS_MASK = bool(_SOFT_LIMIT) and hasattr(signal, "pthread_sigmask")
#: The warning comes with a quarter of the time left, and at most so many seconds before the end.
_LONGEST_NOTICE_SECONDS = 30.0
#: How often it is looked whether somebody touched after the warning.
_LOOK_SECONDS = 0.25


def guarded(body: Any) -> Any:
    """Return a task's ``run`` that ends with Ignore when its attempt no longer counts."""
    function = body.__func__ if isinstance(body, staticmethod) else body
    if getattr(function, "_is_guarded", False):
        return body

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            with _interruptible():
                result = function(*args, **kwargs)
        except Retry:
            # It has published itself; that was compared with the ledger.
            raise
        except Exception as exc:
            _raise_if_taken(exc)
            raise
        _raise_if_taken(None)
        return result

    run._is_guarded = True  # type: ignore[attr-defined]
    return staticmethod(run) if isinstance(body, staticmethod) else run


def _raise_if_taken(cause: Exception | None) -> None:
    attempt = running.get()
    worker = current_worker()
    if attempt is None or attempt.is_closed or worker is None:
        return
    # A fresh lease is an answer for those claims only that were made under it: a worker that was
    # declared dead registers anew, while its old attempts may still run.  And an attempt that took
    # too long is taken from a worker that lives.
    is_lease_fresh = clock.now() < worker.lease_until
    if attempt.claim.worker == worker.id and is_lease_fresh and attempt.deadline is None:
        return
    from celery import current_task

    claim = attempt.claim
    if is_current(reliable_of(current_task.app).ledger, attempt):
        return
    events.task_fenced(
        task=current_task, task_id=claim.task_id, attempt=claim.attempt, state="taken"
    )
    attempt.is_closed = True
    raise Ignore(f"attempt {claim.attempt} was taken from this worker") from cause


def is_current(ledger: Ledger, attempt: RunningAttempt) -> bool:
    """Ask the ledger whether the attempt is the current one; waits for it as long as it takes.

    So is one whose record the server has lost: nobody else would store its outcome.
    """
    claim = attempt.claim
    record = ledger.find(claim.task_id, patience_seconds=FOREVER)
    if record is None:
        return is_forgotten(ledger, attempt)
    return (
        record.state is State.RUNNING
        and record.attempt == claim.attempt
        and record.token == claim.token
    )


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep the soft time limit out of what we do around a body.

    It is a signal that raises wherever the process is: in the middle of a settlement it would leave
    a finished task running for ever.  One that came too late for the body is dropped.
    """
    if not _HAS_MASK or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {_SOFT_LIMIT})
    try:
        yield
    finally:
        if _SOFT_LIMIT not in before:
            _drop_pending()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {_SOFT_LIMIT})


def _drop_pending() -> None:
    if _SOFT_LIMIT in signal.sigpending():
        signal.sigwait({_SOFT_LIMIT})


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the soft time limit through while the body runs."""
    is_main = threading.current_thread() is threading.main_thread()
    if not _HAS_MASK or running.get() is None or not is_main:
        yield
        return
    # A limit that was up while the ledger kept us waiting is not the body's fault.
    _drop_pending()
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {_SOFT_LIMIT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def time_to_run(task: Any, attempt: RunningAttempt) -> Iterator[None]:
    """Warn in time while the body runs; the ledger ends the attempt by itself."""
    seconds = type(task).time_to_run_seconds
    if not seconds:
        yield
        return
    attempt.deadline = clock.now() + seconds
    notice = min(seconds / 4, _LONGEST_NOTICE_SECONDS)
    done = threading.Event()
    context = copy_context()

    def watch() -> None:
        warned: float | None = None
        while True:
            # A touch moves the deadline; the next warning comes before the new one.
            deadline = attempt.deadline or 0.0
            left = deadline - clock.now()
            if left <= notice and warned != deadline:
                warned = deadline
                context.run(_warn, task, attempt, left)
            if done.wait(_LOOK_SECONDS if warned == deadline else max(left - notice, 0.01)):
                return

    watcher = threading.Thread(target=watch, name="celery-reliable-time-to-run", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()


def _warn(task: Any, attempt: RunningAttempt, left: float) -> None:
    claim = attempt.claim
    events.task_running_out(
        task=task, task_id=claim.task_id, attempt=claim.attempt, seconds_left=left
    )
