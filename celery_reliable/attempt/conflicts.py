"""What an attempt does whose object another task holds: skip, wait or fail."""

from __future__ import annotations

import random

from celery import states
from celery.app.task import Context
from celery.exceptions import Ignore, Reject

from celery_reliable import events
from celery_reliable.attempt.conclusion import conclude
from celery_reliable.attempt.delivery import Delivery
from celery_reliable.attempt.outcomes import ended, raising, returning
from celery_reliable.compat.tracer import Traced
from celery_reliable.context import RunningAttempt
from celery_reliable.exceptions import ObjectBusy
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.options import key_of

__all__ = ["give_way", "next_wait"]

#: The header that counts how often a task has waited for its object, up to a number by which the
#: wait is the longest.
_WAITS, _MOST_WAITS = "reliable_waits", 6
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 30.0


def give_way(delivery: Delivery, attempt: RunningAttempt, holder: str) -> Traced:
    """End an attempt whose object the task *holder* has, as the task's ``on_conflict`` says."""
    task = delivery.task
    how = type(task).on_conflict
    if how == "skip":
        events.task_skipped(task=task, task_id=delivery.id, holder=holder)
        # Somebody may wait for its result: its caller, or the canvas that it is a member of.
        body = returning({"skipped": holder})
        return conclude(delivery, attempt, delivery.trace_instead(body))
    logger.info(
        "object_held name=%s id=%s holder=%s on_conflict=%s", task.name, delivery.id, holder, how
    )
    if how == "fail":
        error = ObjectBusy(
            f"{task.name}[{delivery.id}] needs an object that {holder} holds (on_conflict='fail').",
            holder=holder,
        )
        return conclude(delivery, attempt, delivery.trace_instead(raising(error)))
    return _wait(delivery, attempt)


def next_wait(told: object) -> tuple[int, float]:
    """Return the number of a task's next wait, and for how many seconds at most; *told* is what its
    message says of the last, which a sender may have made up.
    """
    before = min(told, _MOST_WAITS) if type(told) is int and told > 0 else 0
    return before + 1, min(_FIRST_WAIT_SECONDS * 2**before, _LONGEST_WAIT_SECONDS)


def _wait(delivery: Delivery, attempt: RunningAttempt) -> Traced:
    """Publish the same task again, for later; that spends no retry, no loss and no number."""
    task = delivery.task
    waits, seconds = next_wait(delivery.request.get(_WAITS))
    args, kwargs = delivery.args, delivery.kwargs
    attempt.waits_for = key_of(task, args, kwargs) or ""
    context = Context(delivery.request, args=args, kwargs=kwargs, called_directly=False)
    publication = task.signature_from_request(
        context,
        args,
        kwargs,
        # Those that wait for one object do not all come back at once.
        countdown=seconds * random.uniform(0.5, 1.0),
        retries=context.retries,
        headers={**(context.headers or {}), _WAITS: waits},
    )
    try:
        publication.apply_async()
    except Exception as exc:
        logger.warning("conflict_not_published name=%s id=%s error=%s", task.name, delivery.id, exc)
        answer = delivery.reliable.ledger.release(
            attempt.claim,
            due_in_ms=delivery.reliable.config.queued_ms,
            patience_seconds=FOREVER,
        )
        if isinstance(answer, answers.Released):
            return ended(Reject(f"not published again: {exc!r}", requeue=True), states.REJECTED)
    waiting = Ignore("the object is held: published again")
    return conclude(delivery, attempt, ended(waiting, states.IGNORED))
