"""Calls of scripts that end a task and free its object: how they get the key of the lock."""

from __future__ import annotations

from collections.abc import Sequence

from celery_reliable.ledger.answers.objects import OtherObject
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import A, Argument, Transition

__all__ = ["call_freeing_lock"]


def call_freeing_lock(
    caller: Caller,
    keys_of: Keys,
    transition: Transition[A],
    keys: Sequence[str],
    args: Sequence[Argument],
    *,
    object_key: str = "",
    patience_seconds: float | None = None,
) -> A:
    """Run a script with the lock of the task's object as its last key.  Raises as `Caller.call`.

    Only the record knows for certain which object the task has locked, and a script may not make
    a key of what it reads.  So the caller gives the key.  If it is not the right one, the script
    changes nothing and answers OtherObject, and this function calls it again with the right one.

    *object_key*: the object as far as the caller knows it.  The process that runs the task knows
    it, so only others need two calls.
    """
    while True:
        lock = keys_of.lock(object_key) if object_key else keys_of.none
        answer = caller.call(transition, [*keys, lock], [*args, object_key], patience_seconds)
        if not isinstance(answer, OtherObject):
            return answer
        object_key = answer.object_key
