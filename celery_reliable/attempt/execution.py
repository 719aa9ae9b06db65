"""Running one delivery: claim, object, body, conclusion.

Celery calls ``task.__trace__`` for every execution, in children, threads, greenlets and in the solo
pool, and never for eager or direct calls.  `around` puts itself around that tracer, so that no hook
which a user overrides can switch the protection off.

Fencing: before a body begins, and before its outcome leaves the process, `guarded` asks whether the
attempt still counts.  A worker that was frozen or cut off for longer than its lease may have been
declared dead, and its tasks run elsewhere.  Its children then begin no body, publish no callbacks
and store no result.  While the lease is fresh the answer is known without asking: the main process
shares the deadline in memory.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from celery import Celery, current_task, states
from celery.exceptions import Ignore, Retry
from celery.worker import state as worker_state

from celery_reliable import clock
from celery_reliable.app import reliable_of
from celery_reliable.attempt.claiming import NOT_OWN, begin, take_object
from celery_reliable.attempt.conclusion import broken_off, conclude, give_way, no_outcome, released
from celery_reliable.attempt.delivery import Delivery, NotBegun, raising
from celery_reliable.compat.consumer import Traced, Tracer, as_traced
from celery_reliable.context import RunningAttempt, current_worker, is_current, running
from celery_reliable.exceptions import LedgerRefused, ObjectIdError
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.message import Envelope, Stamp, seconds_until
from celery_reliable.options import in_force
from celery_reliable.publishing import list_of, resend

__all__ = ["Uninterrupted", "around", "guarded", "is_touched"]

#: How billiard tells a child that its soft time limit is up.
_SOFT_LIMIT = signal.SIGUSR1
_MASK = {_SOFT_LIMIT}


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


def around(task: Any, tracer: Tracer) -> Tracer:
    """Return *tracer* with claim and settlement around it."""

    def trace(uuid: str, args: Any, kwargs: Any, request: dict[str, Any] | None = None) -> Traced:
        given = request if request is not None else {}
        with Uninterrupted():
            return _executed(Delivery(task, tracer, uuid, args, kwargs, given))

    return trace


def _executed(delivery: Delivery) -> Traced:
    """Run the attempt, or end the delivery without one."""
    if current_worker() is None or delivery.reliable.is_unprotected:
        # Without a worker (in a test harness) there is no lease to claim under.
        return delivery.trace()
    attempt = begin(delivery)
    if not isinstance(attempt, RunningAttempt):
        return attempt
    token = running.set(attempt)
    try:
        return _attempted(delivery, attempt)
    except Exception as exc:
        # A fault of ours around the body must not fail the task and acknowledge its message.
        return broken_off(delivery, attempt, exc)
    finally:
        running.reset(token)
        if attempt.unsent is not None:
            _send_unsent(delivery, attempt.unsent)


def _attempted(delivery: Delivery, attempt: RunningAttempt) -> Traced:
    try:
        holder = take_object(delivery, attempt)
    except ObjectIdError as exc:
        return conclude(delivery, attempt, delivery.trace_instead(raising(exc)))
    if attempt.is_closed:
        logger.info(
            "object_held name=%s id=%s holder=%s on_conflict=wait",
            delivery.task.name,
            delivery.id,
            holder or "",
        )
        return as_traced(NotBegun("stands in line for its object"), states.IGNORED)
    if holder == NOT_OWN:
        # An attempt goes on whose record the server has lost; one whose record was taken ends.
        if not is_current(delivery.reliable.ledger, attempt):
            attempt.fence(delivery.task)
            return as_traced(Ignore("taken from this worker"), states.IGNORED)
    elif holder is not None:
        return give_way(delivery, attempt, holder)
    return _traced(delivery, attempt)


def _traced(delivery: Delivery, attempt: RunningAttempt) -> Traced:
    """Run the body under its limits, and conclude."""
    try:
        if seconds := in_force(delivery.task, "time_to_run_seconds", delivery.request):
            # When the time is up, the ledger takes the attempt away.
            attempt.time_to_run_seconds = seconds
            attempt.deadline = clock.now() + seconds
        result = delivery.trace()
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as exc:
        # The worker is being stopped, or the task was terminated: then the main process says how
        # the attempt ends.
        if _is_ended_by_worker(delivery.id):
            raise
        return no_outcome(delivery, attempt, exc)
    except BaseException as exc:
        # A GreenletExit stops a greenlet.  Celery would take the silence after it for a success.
        if type(exc).__name__ == "GreenletExit" and _is_ended_by_worker(delivery.id):
            return released(delivery, attempt)
        # Celery could not store an outcome: the attempt ends without one.
        logger.warning(
            "outcome_not_stored name=%s id=%s error=%s", delivery.task.name, delivery.id, exc
        )
        return no_outcome(delivery, attempt, exc)
    return conclude(delivery, attempt, result)


def running_requests() -> list[Any]:
    """Return the requests of this worker that have begun."""
    return _listed(worker_state.active_requests)


def fetched_requests() -> list[Any]:
    """Return the requests of this worker that wait for its pool, or have begun."""
    return _listed(worker_state.reserved_requests)


def _listed(found: Iterable[Any]) -> list[Any]:
    while True:
        # In a pool of threads each of them adds what it begins.
        with suppress(RuntimeError):
            return list(found)


def _is_ended_by_worker(task_id: str) -> bool:
    """Whether somebody else reports how an interrupted attempt ended.

    For a child process its main process does.  In the main process itself (threads, solo,
    greenlets) that is so at a shutdown, or when the request was cancelled: nobody reports a task
    that calls `sys.exit` there.
    """
    worker = current_worker()
    if worker is not None and os.getpid() != worker.pid:
        return True
    requests = [worker_state.requests.get(task_id), *running_requests()]
    if any(getattr(r, "reliable_is_cancelled", False) and r.id == task_id for r in requests):
        return True
    # Once a shutdown has begun these are exit codes, of which 0 is one.
    signs = (worker_state.should_stop, worker_state.should_terminate)
    return any(sign is not None and sign is not False for sign in signs)


def _send_unsent(delivery: Delivery, unsent: Envelope) -> None:
    """Send what the attempt published under its own id, now that nothing of it runs.

    A publication with an ETA waits in the ledger, unless the ledger says that it is due.
    """
    try:
        wait = seconds_until(unsent.headers.get("eta"))
        about = {"exchange": unsent.exchange, "routing_key": unsent.routing_key}
        is_kept = wait and isinstance(
            delivery.reliable.ledger.moments.wait(
                delivery.id,
                wait,
                epoch=Stamp.of(unsent.headers).epoch,
                queue=list_of(delivery.reliable, unsent.headers, {**unsent.properties, **about}),
                patience_seconds=FOREVER,
            ),
            answers.WaitsUntil,
        )
        if not is_kept:
            resend(delivery.task.app, unsent)
    except Exception as exc:
        # It is recorded, so a pass sends it.
        logger.warning(
            "send_left_to_sweeper name=%s id=%s error=%s", delivery.task.name, delivery.id, exc
        )
