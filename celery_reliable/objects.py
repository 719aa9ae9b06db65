"""The object that a task works on: which lock is its, who has it, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery_reliable.application import reliable_of
from celery_reliable.identity import object_key, resolve_object_id
from celery_reliable.ledger.caller import FOREVER
from celery_reliable.options import TaskObject
from celery_reliable.process import RunningAttempt

__all__ = [
    "UniqueCall",
    "free",
    "fresh_id",
    "has_object",
    "instead_of",
    "is_member",
    "is_unique",
    "keep_ms",
    "key_of",
    "leave",
    "take",
    "unique_call",
    "unique_publication",
]

#: What Celery says when it publishes a canvas's member or callback, and a plain call does not.
#: (`reply_to` is set when a signature is frozen: somebody was given its id already.)
_MEMBERSHIP = ("chain", "chord", "group_id", "parent_id", "reply_to", "root_id")


def key_of(task: Any, args: Any, kwargs: Any) -> str | None:
    """Return the name of the lock that a call of *task* needs; None if it has no object.

    Raises ObjectIdError when the arguments do not give the object's id.
    """
    found: TaskObject | None = getattr(type(task), "_reliable_object", None)
    if found is None:
        return None
    spec = found.spec_for(task)
    value = resolve_object_id(
        spec, found.signature, task.name, args or (), kwargs or {}, by_name=found.by_name
    )
    return object_key(task.name, value, spec)


def has_object(task: Any) -> bool:
    """Whether the calls of *task* are about an object."""
    return getattr(type(task), "_reliable_object", None) is not None


def is_unique(task: Any) -> bool:
    """Whether *task* holds its object from its publication to its settlement."""
    return bool(getattr(type(task), "unique", "") == "queued")


def keep_ms(task: Any) -> int:
    """Return for how long the object of *task* is kept after a success; 0: not at all."""
    return int((type(task).once_for_seconds or 0) * 1000)


def take(task: Any, attempt: RunningAttempt, args: Any, kwargs: Any) -> str | None:
    """Take the object of a running attempt; return the id of the task that has it, if another has,
    and an empty one if the attempt is not its task's any more.

    Waits for the ledger as long as it takes, as `leave` and `free` do.  Raises ObjectIdError as
    `key_of`.
    """
    key = key_of(task, args, kwargs)
    if key is None:
        return None
    holder = reliable_of(task.app).locks.take(key, attempt.claim, patience_seconds=FOREVER)
    if holder is None:
        attempt.object_key = key
    return holder


def leave(task: Any, attempt: RunningAttempt, *, has_succeeded: bool = False) -> None:
    """Keep or free the object of an attempt whose body is over, before its record goes.

    A lock that outlived its record would stay until somebody else wants the object.  A unique
    task's is freed when the ledger has said that the task has ended.
    """
    if attempt.object_key is None:
        return
    if has_succeeded and keep_ms(task):
        reliable_of(task.app).locks.keep(
            attempt.object_key, attempt.claim, keep_ms=keep_ms(task), patience_seconds=FOREVER
        )
        attempt.object_key = None
    elif attempt.is_replaced or not is_unique(task):
        free(task, attempt, is_over=False)


def free(task: Any, attempt: RunningAttempt, *, is_over: bool = True) -> None:
    """Free the object that an attempt has, if it has one.  *is_over*: its task has ended."""
    if attempt.object_key is None:
        return
    reliable_of(task.app).locks.free(
        attempt.object_key, attempt.claim, is_over=is_over, patience_seconds=FOREVER
    )
    attempt.object_key = None


@dataclass
class UniqueCall:
    """A call of a unique task, while it is published."""

    task_id: str
    #: The id of the task that has the object already; empty when this one got it.
    holder: str = ""


#: The call that this thread or greenlet is publishing.
unique_call: ContextVar[UniqueCall | None] = ContextVar("celery_reliable_unique", default=None)


#: The id that is being published, when it is Celery's own choice: nobody has had it before.
fresh_id: ContextVar[str] = ContextVar("celery_reliable_fresh", default="")


def is_member(options: Mapping[str, Any]) -> bool:
    """Whether *options* of `apply_async` are those of a canvas's member.

    Somebody waits for the very id of such a task, so it is published in any case.
    """
    return any(options.get(name) for name in _MEMBERSHIP)


@contextmanager
def unique_publication(task_id: str) -> Iterator[None]:
    """Let what is published under *task_id* be withdrawn in favour of who has the object."""
    token = unique_call.set(UniqueCall(task_id))
    try:
        yield
    finally:
        unique_call.reset(token)


def instead_of(task_id: str) -> str:
    """Return the id of the task that a call is answered with, which was to have *task_id*."""
    call = unique_call.get()
    return call.holder if call is not None and call.task_id == task_id and call.holder else task_id
