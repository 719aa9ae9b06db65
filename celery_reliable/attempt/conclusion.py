"""How an attempt ends: the ledger is told of its outcome, or that it has none."""

from __future__ import annotations

from typing import Any

from celery import states
from celery.exceptions import Ignore, Reject

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.attempt.claiming import leave_object
from celery_reliable.attempt.delivery import Delivery, raising
from celery_reliable.compat.consumer import Traced, as_traced
from celery_reliable.context import RunningAttempt, put_off
from celery_reliable.exceptions import LedgerForbidden, ObjectBusy, one_line
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.model import Cause, Claim, Reason
from celery_reliable.options import is_kept_dead, keep_ms
from celery_reliable.results import tell_chord_patiently

__all__ = [
    "broken_off",
    "bury",
    "conclude",
    "give_way",
    "no_outcome",
    "released",
]

#: The pause after an attempt without an outcome is SWEEP_SECONDS, doubled with each loss, and at
#: most so often: to 32 times as long.
_MOST_DOUBLINGS = 5


def conclude(delivery: Delivery, attempt: RunningAttempt, result: Traced) -> Traced:
    """Tell the ledger what Celery has stored, and return *result*."""
    task, claim = delivery.task, attempt.claim
    if attempt.is_closed or attempt.is_replaced:
        leave_object(task, attempt)
    if attempt.is_closed:
        return result
    # Celery gives no info of a success.
    info = result.info
    state, retval = (info.state, info.retval) if info else (states.SUCCESS, result.retval)
    is_told_again = claim.attempt > 1 or attempt.is_stored_again
    if is_told_again and state in (states.SUCCESS, states.FAILURE):
        request = {**delivery.request, "id": delivery.id}
        tell_chord_patiently(task.backend, request, state, retval)
    answer: answers.ReplaceAnswer | answers.BuryAnswer | answers.SettleAnswer
    ledger = delivery.reliable.ledger
    without = _why_no_outcome(attempt, state, retval)
    if without is not None:
        return no_outcome(delivery, attempt, without)
    if state == states.IGNORED and attempt.is_replaced:
        answer = ledger.replace(
            claim,
            due_in_ms=delivery.reliable.config.queued_ms,
            stored=attempt.stored,
            members=attempt.members,
            patience_seconds=FOREVER,
        )
    elif state in (states.FAILURE, states.REJECTED) and is_kept_dead(
        task, retval if state == states.FAILURE else None
    ):
        answer = bury(
            task,
            claim,
            Reason.FAILED if state == states.FAILURE else Reason.REJECTED,
            retval,
            traceback=str(getattr(result.retval, "traceback", "") or ""),
            patience_seconds=FOREVER,
        )
    elif result.info is None and put_off.takes(task, claim, states.SUCCESS):
        return result
    else:
        keep = keep_ms(task) if result.info is None else 0
        answer = ledger.settle(claim, outcome=state, keep_ms=keep, patience_seconds=FOREVER)
    # A canvas that was quicker than the task it replaced has taken the id over already.
    if isinstance(answer, answers.Fenced | answers.Gone) and not attempt.is_replaced:
        leave_object(task, attempt)
        attempt.fence(task, answer.state if isinstance(answer, answers.Fenced) else "gone")
    return result


def _why_no_outcome(
    attempt: RunningAttempt, state: str, retval: BaseException | None
) -> BaseException | None:
    """Return why an attempt that Celery has ended has no outcome; None if it has one."""
    if state == states.REJECTED and getattr(retval, "requeue", False):
        # A task that sends itself back must not do so for ever.
        return retval or Reject()
    is_to_go_on = state == states.RETRY or (state == states.IGNORED and attempt.is_replaced)
    if is_to_go_on and not attempt.goes_on:
        # An `apply_async` of the user's may have left it to a commit that never came.
        return RuntimeError(f"the task ended as {state}, and nothing was published for it")
    return None


def bury(
    task: Any,
    claim: Claim,
    reason: Reason,
    error: Any,
    *,
    traceback: str = "",
    is_owed: bool = False,
    patience_seconds: float,
) -> answers.BuryAnswer:
    """Make a dead letter of an attempt's task, and tell so.

    *is_owed*: Celery could not store the failure.  Then a pass stores it, and tells so.
    Raises LedgerUnavailable when the ledger does not answer in time, and LedgerRefused.
    """
    answer = reliable_of(task.app).ledger.bury(
        claim,
        reason,
        exception=one_line(error),
        traceback=traceback,
        is_owed=is_owed,
        patience_seconds=patience_seconds,
    )
    if isinstance(answer, answers.Buried) and not is_owed:
        events.task_buried(
            app=task.app,
            name=task.name,
            task_id=claim.task_id,
            reason=reason,
            attempt=claim.attempt,
            losses=claim.losses,
            exception=one_line(error),
            is_failure_told=True,
        )
    return answer


def released(delivery: Delivery, attempt: RunningAttempt) -> Traced:
    """End an attempt that was stopped with its worker: it costs the task no loss."""
    if attempt.is_closed:
        return as_traced(Ignore("closed by its own publication"), states.IGNORED)
    reliable = delivery.reliable
    reliable.ledger.release(
        attempt.claim,
        due_in_ms=reliable.config.sweep_ms,
        is_unsent=not reliable.is_redis_broker,
        patience_seconds=reliable.config.lease_seconds,
    )
    return as_traced(Reject("stopped with its worker", requeue=True), states.REJECTED)


def no_outcome(delivery: Delivery, attempt: RunningAttempt, exc: BaseException) -> Traced:
    """End an attempt of which Celery has stored nothing, as a loss; its task runs again later."""
    leave_object(delivery.task, attempt)
    if attempt.is_closed:
        return as_traced(Ignore("closed by its own publication"), states.IGNORED)
    config, claim = delivery.reliable.config, attempt.claim
    answer = delivery.reliable.ledger.lose(
        claim,
        Cause.NO_OUTCOME,
        max_losses=config.max_losses,
        # At once it would most likely end the same way.
        due_in_ms=config.sweep_ms * 2 ** min(claim.losses, _MOST_DOUBLINGS),
        is_unsent=True,
        detail=one_line(exc),
        patience_seconds=FOREVER,
    )
    if isinstance(answer, answers.Queued | answers.Spent):
        events.task_lost(
            app=delivery.task.app,
            name=delivery.task.name,
            task_id=delivery.id,
            attempt=claim.attempt,
            losses=answer.losses,
            cause=Cause.NO_OUTCOME,
            worker=claim.worker,
            exception=one_line(exc),
        )
    # The message is dropped: a pass sends the task from its record when the pause is over.
    return as_traced(Ignore(f"no outcome: {exc!r}"), states.IGNORED)


def broken_off(delivery: Delivery, attempt: RunningAttempt, exc: Exception) -> Traced:
    """End an attempt around whose body something of ours went wrong, as one without an outcome.

    Where the ledger's Redis forbids that, the claim stays, and no process runs it.  As soon as
    somebody may end it, it is settled when its success is stored, and lost otherwise.
    """
    if not isinstance(exc, LedgerForbidden):
        logger.error(
            "attempt_failed_outside_body name=%s id=%s error=%s",
            delivery.task.name,
            delivery.id,
            exc,
            exc_info=exc,
        )
        try:
            return no_outcome(delivery, attempt, exc)
        except LedgerForbidden as forbidden:
            exc = forbidden
    logger.error("attempt_left name=%s id=%s error=%s", delivery.task.name, delivery.id, exc)
    return as_traced(Reject(f"not concluded: {exc}", requeue=True), states.REJECTED)


def give_way(delivery: Delivery, attempt: RunningAttempt, holder: str) -> Traced:
    """End an attempt whose object the task *holder* has, as the task's ``on_conflict`` says:
    "skip" or "fail".
    """
    task = delivery.task
    how = type(task).on_conflict
    if how == "skip":
        events.task_skipped(task=task, task_id=delivery.id, holder=holder)
        # Somebody may wait for its result: its caller, or the canvas that it is a member of.
        result = delivery.trace_instead(lambda *args, **kwargs: {"skipped": holder})
        return conclude(delivery, attempt, result)
    logger.info(
        "object_held name=%s id=%s holder=%s on_conflict=%s", task.name, delivery.id, holder, how
    )
    error = ObjectBusy(
        f"{task.name}[{delivery.id}] needs an object that {holder} holds (on_conflict='fail').",
        holder=holder,
    )
    return conclude(delivery, attempt, delivery.trace_instead(raising(error)))
