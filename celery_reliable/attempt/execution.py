"""Running one delivery: claim, object, body, conclusion.

Celery calls ``task.__trace__`` for every execution, in children, threads, greenlets and in the solo
pool, and never for eager or direct calls.  `around` puts itself around that tracer, so that no hook
which a user overrides can switch the protection off.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from typing import Any

from celery import states
from celery.exceptions import Ignore
from celery.worker import state as worker_state

from celery_reliable.attempt.claiming import begin
from celery_reliable.attempt.conclusion import broken_off, conclude, give_way, no_outcome, released
from celery_reliable.attempt.delivery import Delivery, NotBegun, raising
from celery_reliable.attempt.fencing import Uninterrupted, time_to_run
from celery_reliable.attempt.object_lock import NOT_OWN, take
from celery_reliable.compat.tracer import Traced, Tracer, as_traced
from celery_reliable.context import RunningAttempt, current_worker, is_current, running
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.message import Envelope, Stamp, seconds_until
from celery_reliable.options import in_force
from celery_reliable.publishing import list_of, resend

__all__ = ["around"]


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
        holder = take(delivery, attempt)
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
        seconds = in_force(delivery.task, "time_to_run_seconds", delivery.request)
        with time_to_run(delivery.task, attempt, seconds) if seconds else nullcontext():
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
