"""How a delivery becomes an attempt: by a claim.  A delivery that gets none is ended here.  And the
object of an attempt: taken before its body, kept or freed after it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from celery import states
from celery.exceptions import Ignore, Reject

from celery_reliable import clock, events
from celery_reliable.app import reliable_of
from celery_reliable.attempt.delivery import DELIVERY, EARLY, Delivery, NotBegun
from celery_reliable.attempt.replacement import adopt
from celery_reliable.compat.consumer import Traced, as_traced
from celery_reliable.context import RunningAttempt, WorkerProcess, current_worker
from celery_reliable.exceptions import (
    LedgerForbidden,
    LedgerRefused,
    ObjectIdError,
    ReliableError,
)
from celery_reliable.ledger import FOREVER, Ledger, Step, answers, slots
from celery_reliable.log import logger
from celery_reliable.message import HEIR, NAMED, NamedWorkers, seconds_until
from celery_reliable.model import Claim, ClaimRequest, EarlyClaim, Rate, Room
from celery_reliable.options import (
    is_limited,
    is_of_object,
    is_unique,
    key_of,
    rate_of,
    room_of,
    stands_in_line,
)

__all__ = [
    "NOT_OWN",
    "begin",
    "claim_or_record",
    "claimed_early",
    "free_object",
    "leave_object",
    "take_object",
]

#: What `take_object` returns when the record is not the attempt's: the server lost it, or it was
#: taken.
NOT_OWN = ""


def take_object(delivery: Delivery, attempt: RunningAttempt) -> str | None:
    """Take a place of the object of a delivery's attempt.  Return None when it has it or needs
    none, the id of the task that holds it otherwise, or `NOT_OWN`.  One that stands in the line
    then is closed.

    Whatever ends the task frees it.  Waits for the ledger as long as it takes, as `leave_object`
    does.  Raises ObjectIdError when the arguments name no object.
    """
    reliable, task = delivery.reliable, delivery.task
    room = room_of(task, key_of(task, delivery.args, delivery.kwargs), delivery.request)
    if room is None:
        return None
    stands = stands_in_line(task)
    answer: answers.PlaceAnswer = answers.Placed(attempt.place)
    if attempt.place not in slots(room.object_key, room.places):
        answer = reliable.ledger.take_place(
            room,
            attempt.claim,
            due_in_ms=reliable.config.queued_ms,
            stands=stands,
            queue=delivery.list_key if stands else "",
            patience_seconds=FOREVER,
        )
    if isinstance(answer, answers.Placed):
        places = None if room.is_own else room.places
        attempt.claim = replace(attempt.claim, object_key=answer.object_key, places=places)
        return None
    if isinstance(answer, answers.Standing):
        attempt.is_closed = True
        return answer.before
    return answer.before if isinstance(answer, answers.Full) else NOT_OWN


def free_object(task: Any, claim: Claim, *, is_replaced: bool = False) -> Claim:
    """Give back the object of an attempt that is over; return the claim without the object.

    A task that took the object as it was published keeps it until the task has ended, unless a
    canvas takes its place (*is_replaced*).
    """
    if not claim.object_key or (_is_kept(task) and not is_replaced):
        return claim
    ledger = reliable_of(task.app).ledger
    ledger.free_place(claim.object_key, claim, patience_seconds=FOREVER)
    return replace(claim, object_key="")


def leave_object(task: Any, attempt: RunningAttempt) -> None:
    """Give back the object of an attempt whose body is over, as its task goes on."""
    if not attempt.is_settled:
        attempt.claim = free_object(task, attempt.claim, is_replaced=attempt.is_replaced)


def leave_unbegun(delivery: Delivery) -> None:
    """Give back the place that a task was given as its turn in the line had come, since an order
    keeps it from beginning: others go on, and it stands in line again when the order has ended.

    Raises what the ledger raises.
    """
    task, ledger = delivery.task, delivery.reliable.ledger
    if not stands_in_line(task) or _is_kept(task):
        return
    (look,) = ledger.look_all([delivery.id])
    if look is not None and look.object_key:
        # What a lost attempt had may be in use yet, and stays the task's.
        ledger.free_place(look.object_key, Claim(delivery.id, 0, "", ""))


def _is_kept(task: Any) -> bool:
    return is_unique(task) or type(task).place == "queued"


def _waits_for(
    delivery: Delivery,
) -> tuple[Step[answers.WaitAnswer] | None, Room | None]:
    """Return what an attempt has to have before its body begins: the step that asks for its moment,
    if it has an ETA or a limited rate, or else the object of which it takes a place.

    Either is asked for with the claim.
    """
    task, args, kwargs = delivery.task, delivery.args, delivery.kwargs
    # By this worker's clock: the ledger's may have been set forward since it was published.
    wait = seconds_until(delivery.request.get("eta")) if delivery.stamp.epoch else 0.0
    if wait:
        return _reserving(delivery, wait), None
    try:
        rate = rate_of(task, args, kwargs) if delivery.stamp.epoch else None
        if rate is None:
            return None, room_of(task, key_of(task, args, kwargs), delivery.request)
    except ObjectIdError:
        # The attempt fails by it, as soon as it takes its object.
        return None, None
    return _reserving(delivery, rate), None


def _reserving(delivery: Delivery, wait: Rate | float) -> Step[answers.WaitAnswer]:
    moments, epoch = delivery.reliable.ledger.moments, delivery.stamp.epoch
    return moments.wait_step(delivery.id, wait, epoch=epoch, queue=delivery.list_key)


#: A younger claim that was made with the taking counts without a question to the ledger, while the
#: lease surely holds.  An older one may belong to a worker that was away, and was declared dead.
_FRESH_SECONDS = 0.5

_Answer = answers.ClaimAnswer | answers.WaitAnswer | answers.Changed


def begin(delivery: Delivery) -> RunningAttempt | Traced:
    """Claim a delivery's task and return the attempt, or what ends the delivery without one.

    Waits for the worker's lease, and for the ledger as long as it takes.
    """
    named = NamedWorkers.of(delivery.request) if NAMED in delivery.request else None
    worker = current_worker()
    assert worker is not None
    try:
        if named is not None and not named.may_run(worker.nodename):
            return _turned_away(delivery, worker)
        begun = _claim(delivery, worker)
    except LedgerRefused as exc:
        logger.error("not_claimed name=%s id=%s error=%s", delivery.task.name, delivery.id, exc)
        if isinstance(exc, LedgerForbidden):
            # Another worker may be allowed to run it, or this one later.
            return as_traced(Reject(f"not claimed: {exc}", requeue=True), states.REJECTED)
        # If it has a record, the sweeper sends it again.
        return as_traced(Ignore(f"not claimed: {exc}"), states.IGNORED)
    if not isinstance(begun, RunningAttempt):
        return _without_attempt(delivery, begun)
    if begun.claim.attempt > delivery.stamp.attempt + 1:
        _tell_redelivered(delivery, begun.claim)
    return begun


def claim_or_record(
    ledger: Ledger,
    request: ClaimRequest,
    message: Callable[[], str],
    *,
    patience_seconds: float,
) -> answers.ClaimAnswer:
    """Claim a task.  One without a record gets it from *message*.

    Raises LedgerUnavailable when the ledger does not answer in time, and LedgerRefused.
    """
    answer = ledger.claim(request, patience_seconds=patience_seconds)
    if not isinstance(answer, answers.Unrecorded):
        return answer
    return ledger.claim(request, message=message(), patience_seconds=patience_seconds)


def claimed_early(worker: WorkerProcess, properties: Mapping[str, Any]) -> EarlyClaim | None:
    """Return the claim that was made as the message was taken; None when there is none, or when
    somebody may have taken it since.
    """
    told = properties.get(EARLY)
    early = EarlyClaim(*told) if told else None
    if early is None or clock.now() - early.asked_at > _FRESH_SECONDS:
        return None
    return early if worker.surely_holds(early.worker) else None


def _claim(delivery: Delivery, worker: WorkerProcess) -> RunningAttempt | _Answer:
    stamp, properties = delivery.stamp, delivery.properties
    is_adopted = not stamp.generation
    early = claimed_early(worker, properties)
    if early is not None:
        return RunningAttempt(early.of(delivery.id), stamp, is_adopted, place=early.place)
    config, ledger = delivery.reliable.config, delivery.reliable.ledger
    token = str(properties.get(DELIVERY) or secrets.token_hex(8))
    if token in worker.given_back:
        return answers.Changed()
    moment, room = _waits_for(delivery)
    orders = worker.orders_now(lambda: ledger.orders.read(FOREVER))
    strikes = tuple(
        order.id
        for order in orders.of_task(delivery.task.name)
        if order.object_id is None
        or is_of_object(delivery.task, order.object_id, delivery.args, delivery.kwargs)
    )
    for name in worker.turns_to_claim():
        request = ClaimRequest(
            delivery.ref,
            stamp.epoch,
            stamp.generation,
            worker=name,
            token=token,
            pid=os.getpid(),
            strikes=strikes,
            list_key=delivery.list_key if strikes else "",
        )
        due_in_ms = config.queued_ms
        place = ledger.step_behind(request, room, due_in_ms=due_in_ms) if room else None
        answer = ledger.claim(request, behind=moment, along=place, patience_seconds=FOREVER)
        if isinstance(answer, answers.Unrecorded):
            message, is_adopted = delivery.message(), True
            if moment is not None or (is_limited(delivery.task) and not stamp.epoch):
                # Only a record can wait for its moment: it is sent with a stamp, and then it asks.
                # The server may have lost the one that it had.
                adopt(ledger, delivery.ref, message, "", is_used=True)
                return answers.WaitsUntil(0)
            answer = ledger.claim(request, message=message, patience_seconds=FOREVER)
        if moment is not None and isinstance(moment.answer, answers.WaitsUntil):
            return moment.answer
        if isinstance(answer, answers.Claimed):
            claim = request.claim(answer.attempt, answer.losses)
            placed = place.answer if place is not None else None
            key = placed.object_key if isinstance(placed, answers.Placed) else answer.place
            return RunningAttempt(claim, stamp, is_adopted, place=key)
        if not isinstance(answer, answers.NoLease):
            break
    return answer


def _turned_away(delivery: Delivery, worker: WorkerProcess) -> Traced:
    """Have a task sent to a worker that may run it, where this one may not: its message was moved
    by hand, or was sent to a worker that has another name now.
    """
    ledger = delivery.reliable.ledger
    answer = ledger.named.divert(delivery.id, delivery.stamp.epoch, patience_seconds=FOREVER)
    if isinstance(answer, answers.Absent):
        # Unless it has ended, this makes its record.
        begun = _claim(delivery, worker)
        if isinstance(begun, RunningAttempt):
            ledger.release(begun.claim, due_in_ms=0, is_unsent=True, patience_seconds=FOREVER)
    events.task_turned_away(
        app=delivery.task.app,
        name=delivery.task.name,
        task_id=delivery.id,
        worker=worker.id,
    )
    return as_traced(Ignore("another worker is to run it"), states.IGNORED)


def _tell_redelivered(delivery: Delivery, claim: Claim) -> None:
    """Mark the task's request as redelivered, where Celery does, when this publication was begun
    before and lost.

    A broker marks only what it returned by itself.  And a higher number alone proves nothing: the
    last member of a canvas goes on with the numbers of the task that it replaced.
    """
    info = delivery.request.get("delivery_info") or {}
    if claim.losses or info.get("redelivered"):
        delivery.request["delivery_info"] = {**info, "redelivered": True}
        events.task_recovered(
            app=delivery.task.app,
            name=delivery.task.name,
            task_id=delivery.id,
            attempt=claim.attempt,
            losses=claim.losses,
            worker=claim.worker,
        )


def _without_attempt(delivery: Delivery, answer: _Answer) -> Traced:
    """End a delivery that may not run.  Its message can be dropped: the record outlives it."""
    if isinstance(answer, answers.WaitsUntil):
        logger.debug(
            "task_too_early name=%s id=%s until=%s",
            delivery.task.name,
            delivery.id,
            answer.due_ms / 1000,
        )
        return as_traced(NotBegun(f"not run: {answer.word}"), states.IGNORED)
    if isinstance(answer, answers.Struck):
        events.task_struck(task=delivery.task, task_id=delivery.id, order=answer.order)
        try:
            leave_unbegun(delivery)
        except ReliableError as exc:
            logger.warning("claim_not_released id=%s error=%s", delivery.id, exc)
        return as_traced(NotBegun(f"not run: {answer.word}"), states.IGNORED)
    logger.info(
        "delivery_dropped name=%s id=%s reply=%s", delivery.task.name, delivery.id, answer.word
    )
    heir = delivery.request.get(HEIR)
    refused = isinstance(answer, (answers.Stale, answers.Held))
    if refused and not delivery.stamp.epoch and heir:
        # It is refused only because a worker without the package published it unrecorded; the task
        # that the canvas replaces may still be unwinding.
        try:
            if adopt(delivery.reliable.ledger, delivery.ref, delivery.message(), str(heir)):
                logger.info("publication_adopted name=%s id=%s", delivery.task.name, delivery.id)
        except ReliableError as exc:
            return as_traced(Reject(f"not recorded: {exc}", requeue=True), states.REJECTED)
    if isinstance(answer, answers.NoLease):
        # Not acknowledged: what this worker held belongs to the sweeper now.
        return as_traced(Reject("this worker was declared dead", requeue=True), states.REJECTED)
    return as_traced(Ignore(f"not run: {answer.word}"), states.IGNORED)
