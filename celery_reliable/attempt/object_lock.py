"""The object of a running attempt: taken before its body, kept or freed after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.context import RunningAttempt
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.model import Room
from celery_reliable.options import (
    is_placed_early,
    is_unique,
    key_of,
    room_of,
    stands_in_line,
)

__all__ = ["NOT_OWN", "leave", "take"]

#: What `take` returns when the record is not the attempt's: the server lost it, or it was taken.
NOT_OWN = ""


def take(
    task: Any, attempt: RunningAttempt, args: Any, kwargs: Any, headers: Mapping[str, Any]
) -> str | None:
    """Take the object of a running attempt.  Return None when it has it or needs none, the id of
    the task that holds it otherwise, or `NOT_OWN`.

    *headers*: of the message.  Whatever ends the task frees it.  Waits for the ledger as long as it
    takes, as `leave` does.  Raises ObjectIdError when the arguments name no object.
    """
    key = key_of(task, args, kwargs)
    if key is None:
        return None
    room = room_of(task, key, headers)
    if room is not None:
        return _take_place(task, attempt, room)
    holder = reliable_of(task.app).locks.take(key, attempt.claim, patience_seconds=FOREVER)
    if holder is None:
        attempt.claim = replace(attempt.claim, object_key=key)
    return holder


def _take_place(task: Any, attempt: RunningAttempt, room: Room) -> str | None:
    """Take a place of an object, or let the task stand in its line: then the attempt is closed."""
    reliable = reliable_of(task.app)
    answer = reliable.ledger.take_place(
        room.object_key,
        room.places,
        attempt.claim,
        due_in_ms=reliable.config.queued_ms,
        stands=stands_in_line(task),
        patience_seconds=FOREVER,
    )
    if isinstance(answer, answers.Placed):
        attempt.claim = replace(
            attempt.claim, object_key=answer.object_key, has_line=stands_in_line(task)
        )
        return None
    if isinstance(answer, answers.Standing):
        attempt.is_closed = True
        return answer.before
    return answer.task_id if isinstance(answer, answers.Full) else NOT_OWN


def leave(task: Any, attempt: RunningAttempt) -> None:
    """Give back the object of an attempt whose body is over, as its task goes on.

    One that took it as it was published keeps it until it has ended, unless a canvas takes its
    place.
    """
    key = attempt.claim.object_key
    if key and not attempt.is_settled and (attempt.is_replaced or not _is_kept(task)):
        reliable_of(task.app).locks.free(key, attempt.claim, patience_seconds=FOREVER)
        attempt.claim = replace(attempt.claim, object_key="")


def _is_kept(task: Any) -> bool:
    return is_unique(task) or is_placed_early(task)
