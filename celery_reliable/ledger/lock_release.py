"""Scripts that end a task free its object with it: how the key of that lock reaches them."""

from __future__ import annotations

from collections.abc import Sequence

from celery_reliable.ledger.answers.tasks import OtherObject
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
    """Run the script of *transition* as `Caller.call` does, with the lock of the task's object as
    its last key, and the object as its last argument.

    Only the task's record says for sure which object that is, and no script makes a key of what it
    reads.  So one that would have to free another than was given changes nothing and answers
    OtherObject, and is asked again with that one.  *object_key*: what the caller knows.  Who runs
    the task knows it, so only who ends the task of another asks twice.
    """
    while True:
        lock = keys_of.lock(object_key) if object_key else keys_of.none
        answer = caller.call(transition, [*keys, lock], [*args, object_key], patience_seconds)
        if not isinstance(answer, OtherObject):
            return answer
        object_key = answer.object_key
