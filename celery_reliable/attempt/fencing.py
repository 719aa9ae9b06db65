"""Before a body begins, and before its outcome leaves the process: does the attempt still count?

A worker that was frozen or cut off for longer than its lease may have been declared dead, and
its tasks run elsewhere.  Its children then begin no body, publish no callbacks and store no result.
While the lease is fresh the answer is known without asking: the main process shares the deadline in
memory.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

from celery import current_task
from celery.exceptions import Ignore, Retry

from celery_reliable import clock
from celery_reliable.app import reliable_of
from celery_reliable.attempt.time_limits import Interruptible
from celery_reliable.context import RunningAttempt, current_worker, is_current, running
from celery_reliable.exceptions import LedgerRefused

__all__ = ["guarded"]


def guarded(body: Any) -> Any:
    """Return a task's ``run`` that ends with Ignore when its attempt no longer counts."""
    function = body.__func__ if isinstance(body, staticmethod) else body
    if getattr(function, "_is_guarded", False):
        return body

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

    run._is_guarded = True  # type: ignore[attr-defined]
    return staticmethod(run) if isinstance(body, staticmethod) else run


def _holds_lease(attempt: RunningAttempt) -> bool:
    """Whether an attempt's worker surely was not declared dead.

    A fresh lease protects only the claims that were made under it: a worker that was declared dead
    registers anew, while its old attempts may still run.
    """
    worker = current_worker()
    if worker is None:
        return False
    return attempt.claim.worker == worker.id and clock.now() < worker.lease_until


def _raise_if_late() -> None:
    """Let no body begin of an attempt that has stood still since it was claimed, and was taken."""
    attempt = running.get()
    if attempt is not None and not _holds_lease(attempt):
        # If the ledger refuses to say so, the attempt does as if it had not asked.
        with suppress(LedgerRefused):
            _raise_if_taken(None)


def _raise_if_taken(cause: Exception | None) -> None:
    attempt = running.get()
    if attempt is None or attempt.is_closed or current_worker() is None:
        return
    # An attempt that exceeds its time to run is taken from a worker that lives.
    if attempt.deadline is None and _holds_lease(attempt):
        return
    if is_current(reliable_of(current_task.app).ledger, attempt):
        return
    attempt.fence(current_task)
    raise Ignore(f"attempt {attempt.claim.attempt} was taken from this worker") from cause
