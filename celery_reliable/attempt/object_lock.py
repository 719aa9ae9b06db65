"""The object of a running attempt: taken before its body, kept or freed after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.attempt.delivery import Delivery
from celery_reliable.context import RunningAttempt
from celery_reliable.ledger import FOREVER, answers, slots
from celery_reliable.model import Claim
from celery_reliable.options import (
    is_unique,
    key_of,
    room_of,
    stands_in_line,
)

__all__ = ["NOT_OWN", "free_object", "leave", "leave_unbegun", "take"]

#: What `take` returns when the record is not the attempt's: the server lost it, or it was taken.
NOT_OWN = ""


def take(delivery: Delivery, attempt: RunningAttempt) -> str | None:
    """Take a place of the object of a delivery's attempt.  Return None when it has it or needs
    none, the id of the task that holds it otherwise, or `NOT_OWN`.  One that stands in the line
    then is closed.

    Whatever ends the task frees it.  Waits for the ledger as long as it takes, as `leave` does.
    Raises ObjectIdError when the arguments name no object.
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


def leave(task: Any, attempt: RunningAttempt) -> None:
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
