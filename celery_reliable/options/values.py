"""What follows from a task's options: whether it is ours, and which object a call needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from celery_reliable.model import Rate, Room, TaskRef
from celery_reliable.options.calls import call_of, in_force, may_have_more_places
from celery_reliable.options.definition import ALWAYS, TaskObject
from celery_reliable.options.object_id import object_key, parsed_rate

__all__ = [
    "id_of",
    "is_kept_dead",
    "is_limited",
    "is_of_object",
    "is_reliable",
    "is_unique",
    "keep_ms",
    "key_of",
    "names_workers",
    "rate_of",
    "room_of",
    "stands_in_line",
    "task_ref",
]

#: The object of a task that names none, and is limited as a whole.
_ALL = "all"


def key_of(task: Any, args: Any, kwargs: Any) -> str | None:
    """Return the name of the lock that a call of *task* needs; None if it has no object.

    Raises ObjectIdError when the arguments do not give the object's id.
    """
    found: TaskObject | None = getattr(type(task), "_reliable_object", None)
    if found is None:
        # The whole task is the object.
        has_places = getattr(type(task), "at_most", None) is not None
        return object_key(task.name, _ALL) if has_places else None
    return object_key(task.name, found.id_of(task, args, kwargs), found.spec)


def id_of(task: Any, args: Any, kwargs: Any) -> object:
    """Return the object id that a call of *task* gives; None if the task names no object.

    Raises ObjectIdError when the arguments do not give it.
    """
    found: TaskObject | None = getattr(type(task), "_reliable_object", None)
    return None if found is None else found.id_of(task, args, kwargs)


def is_kept_dead(task: Any, error: object) -> bool:
    """Whether a task becomes a dead letter that ended for good; *error*: None if by no failure."""
    wanted = type(task).dead_letter
    is_expected = bool(task.throws) and isinstance(error, task.throws)
    return bool(wanted) and (wanted == ALWAYS or not is_expected)


def is_of_object(task: Any, object_id: str, args: Any, kwargs: Any) -> bool:
    """Whether a call of *task* is about the object whose id is given as text: as it is, or as JSON
    for a list of several values.
    """
    # The task itself fails where its arguments name no object; else the text is no list.
    with suppress(ValueError):
        key = key_of(task, args, kwargs)
        if key == object_key(task.name, object_id):
            return True
        is_list = key is not None and object_id.startswith("[")
        return is_list and key == object_key(task.name, json.loads(object_id))
    return False


def room_of(
    task: Any, object_key: str | None, headers: Mapping[str, Any] | None = None
) -> Room | None:
    """Return the object of a call with its places; None if it is about none.

    A call may say of how many places it takes one, where its task says so (`at_most`).
    """
    own = call_of(headers).get("at_most") if may_have_more_places(task) else None
    places = own or getattr(type(task), "at_most", None) or 1
    return None if object_key is None else Room(object_key, places, is_own=own is not None)


def stands_in_line(task: Any) -> bool:
    """Whether *task* waits in line for its object."""
    return getattr(type(task), "on_conflict", "") in ("wait", "retry")


def is_unique(task: Any) -> bool:
    """Whether *task* holds its object from its publication to its settlement."""
    return bool(getattr(type(task), "unique", "") == "queued")


def keep_ms(task: Any) -> int:
    """Return for how many ms the object of *task* is kept after a success; 0: not at all."""
    return int((getattr(type(task), "once_for_seconds", None) or 0) * 1000)


def is_limited(task: Any) -> bool:
    """Whether attempts of *task* may begin only so often."""
    return bool(getattr(type(task), "rate", None))


def rate_of(task: Any, args: Any, kwargs: Any) -> Rate | None:
    """Return the rate that a call of *task* counts to; None if it has none.

    Raises ObjectIdError when the arguments do not give the id of the object whose rate it is.
    """
    interval_us, is_per_object = parsed_rate(getattr(type(task), "rate", None))
    if not interval_us:
        return None
    key = f"{task.name} {key_of(task, args, kwargs)}" if is_per_object else task.name
    return Rate(key, interval_us)


def is_reliable(task: object) -> bool:
    """Whether *task* is one of ours.

    Only its class is asked: attributes of the task itself belong to the user.
    """
    return bool(getattr(type(task), "is_reliable", False))


def names_workers(app: Any) -> bool:
    """Whether a task of *app* names the workers that may run it, or should."""
    return any(
        is_reliable(task)
        and (type(task).only_workers is not None or type(task).prefer_workers is not None)
        for task in app.tasks.values()
    )


def task_ref(task: Any, task_id: str, headers: Mapping[str, Any] | None) -> TaskRef:
    """Return what the ledger needs to know about a call of *task*, whose message has *headers*."""
    seconds = in_force(task, "time_to_run_seconds", headers)
    losses = in_force(task, "max_losses", headers)
    return TaskRef(task_id, task.name, losses, int(seconds * 1000) if seconds else 0)
