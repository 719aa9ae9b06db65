"""Calls of a unique task: one is published, and the others get its id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

__all__ = ["UniqueCall", "fresh_id", "instead_of", "is_member", "unique_call", "unique_publication"]

#: What Celery says when it publishes a canvas's member or callback, and a plain call does not.
#: (`reply_to` is set when a signature is frozen: somebody was given its id already.)
_MEMBERSHIP = ("chain", "chord", "group_id", "parent_id", "reply_to", "root_id")


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
    """Let the publication of *task_id* be withdrawn if another task has the object."""
    token = unique_call.set(UniqueCall(task_id))
    try:
        yield
    finally:
        unique_call.reset(token)


def instead_of(task_id: str) -> str:
    """Return the id that the call gets: *task_id*, or that of the task that has the object."""
    call = unique_call.get()
    return call.holder if call is not None and call.task_id == task_id and call.holder else task_id
