"""The object of a running attempt: taken before its body, kept or freed after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.context import RunningAttempt
from celery_reliable.ledger import FOREVER
from celery_reliable.options import is_unique, key_of

__all__ = ["NOT_OWN", "leave", "take"]

#: What `take` returns when the record is not the attempt's: the server lost it, or it was taken.
NOT_OWN = ""


def take(task: Any, attempt: RunningAttempt, args: Any, kwargs: Any) -> str | None:
    """Take the object of a running attempt.  Return None when it has it or needs none, the id of
    the task that holds it otherwise, or `NOT_OWN`.

    Whatever ends the task frees it.  Waits for the ledger as long as it takes, as `leave` does.
    Raises ObjectIdError when the arguments name no object.
    """
    key = key_of(task, args, kwargs)
    if key is None:
        return None
    holder = reliable_of(task.app).locks.take(key, attempt.claim, patience_seconds=FOREVER)
    if holder is None:
        attempt.claim = replace(attempt.claim, object_key=key)
    return holder


def leave(task: Any, attempt: RunningAttempt) -> None:
    """Give back the object of an attempt whose body is over, as its task goes on.

    A unique task keeps its object until it has ended, unless a canvas takes its place.
    """
    key = attempt.claim.object_key
    if key and not attempt.is_settled and (attempt.is_replaced or not is_unique(task)):
        reliable_of(task.app).locks.free(key, attempt.claim, patience_seconds=FOREVER)
        attempt.claim = replace(attempt.claim, object_key="")
