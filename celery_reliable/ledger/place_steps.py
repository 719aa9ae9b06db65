"""Calls of the script that gives places of an object, unsent: others are sent with them."""

from __future__ import annotations

from collections.abc import Sequence

from celery_reliable.ledger.answers import PlaceAnswer
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import Step, Transition
from celery_reliable.model import NextUp

__all__ = ["hand_over_step", "place_step", "slots"]

_PLACE: Transition[PlaceAnswer] = Transition("place", PlaceAnswer)


def slots(object_key: str, places: int) -> list[str]:
    """Return what the places of an object are called; each has a lock of its own.

    The first is called as the object: it is the lock of an object that one task has at a time.
    """
    return [object_key, *(f"{object_key}#{n}" for n in range(2, places + 1))]


def place_step(
    keys: Keys,
    object_key: str,
    places: int,
    task_id: str,
    token: str,
    due_in_ms: int,
    *,
    attempt: int | str = 0,
    worker: str = "",
    is_new: bool = False,
    seen: Sequence[str] = (),
    queue: str = "",
    own: str = "",
) -> Step[PlaceAnswer]:
    """Return the call by which a task asks for a place of an object; *own*: the one that its record
    notes, where there are fewer by now.  Without a *task_id* it is who stands in the line first.
    """
    named = slots(object_key, places)
    values = [*seen, *[""] * places][:places]
    holders = [one.partition(":")[2] for one in values]
    locks, about = [], []
    for slot, value, holder in zip(named, values, holders, strict=True):
        locks += [keys.lock(slot), keys.record(holder) if holder else keys.none]
        about += [slot, value]
    if own:
        locks.append(keys.lock(own))
    return Step(
        _PLACE,
        [
            keys.record(task_id),
            keys.due,
            keys.waiting(object_key),
            keys.claims(worker) if worker else keys.none,
            queue or keys.none,
            *locks,
        ],
        [
            task_id,
            attempt,
            token,
            object_key,
            "1" if is_new else "",
            due_in_ms,
            "1" if queue else "",
            *about,
        ],
    )


def hand_over_step(keys: Keys, object_key: str, next_up: NextUp) -> Step[PlaceAnswer]:
    """Return the call by which whoever frees a place gives it to the one who stands there first.

    Nothing happens if that one may not be sent as it is.
    """
    return place_step(
        keys,
        object_key,
        next_up.places,
        "",
        "",
        next_up.due_in_ms,
        queue=next_up.queue,
    )
