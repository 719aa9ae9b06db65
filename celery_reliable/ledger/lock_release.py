"""Calls of scripts that end a task and free its object: how they get the key of the lock, and who
is next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from celery_reliable.ledger.answers import CallUpAnswer
from celery_reliable.ledger.answers.objects import Next, OtherObject
from celery_reliable.ledger.answers.tasks import Troubled
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.place_steps import hand_over_step
from celery_reliable.ledger.sent_along import SentAlong
from celery_reliable.ledger.transitions import A, Argument, Step, Together, Transition
from celery_reliable.model import NextUp

__all__ = ["OnNext", "call_freeing_lock", "line_of", "run_freeing"]

#: Called with an object that may be free and the task that stands in its line first.
OnNext = Callable[[str, str], None]

_CALL_UP: Transition[CallUpAnswer] = Transition("call_up", CallUpAnswer)


def line_of(object_key: str) -> str:
    """Return the object whose place this is: places but the first have a number behind it."""
    return object_key.partition("#")[0]


def run_freeing(
    caller: Caller | SentAlong,
    keys_of: Keys,
    step: Step[A],
    object_key: str,
    on_next: OnNext | None,
    patience_seconds: float | None = None,
    *,
    next_up: NextUp | None = None,
) -> A:
    """Run a step that may free an object; in the same step *next_up* is sent, or the first of its
    line is due.

    Tells *on_next* of that one, who could send it at once.  Raises as `Caller.call`.
    """
    called = call_up_step(keys_of, object_key)
    if next_up is not None:
        step = Together(step, hand_over_step(keys_of, line_of(object_key), next_up))
    answer = caller.run(Together(step, called), patience_seconds)
    is_over = not isinstance(answer, OtherObject | Troubled)
    if is_over and on_next is not None and isinstance(called.answer, Next):
        on_next(object_key, called.answer.task_id)
    return answer


def call_up_step(keys_of: Keys, object_key: str) -> Step[CallUpAnswer]:
    """Return the call that makes the first of an object's line due, if the object is free."""
    line = keys_of.waiting(line_of(object_key))
    return Step(_CALL_UP, [keys_of.lock(object_key), line, keys_of.due], [])


def call_freeing_lock(
    caller: Caller,
    keys_of: Keys,
    transition: Transition[A],
    keys: Sequence[str],
    args: Sequence[Argument],
    *,
    object_key: str = "",
    has_line: bool = False,
    next_up: NextUp | None = None,
    on_next: OnNext | None = None,
    patience_seconds: float | None = None,
) -> A:
    """Run a script with the lock of the task's object as its last key.  Raises as `Caller.call`.

    Only the record knows for certain which object the task has locked, and a script may not make
    a key of what it reads.  So the caller gives the key.  If it is not the right one, the script
    changes nothing and answers OtherObject, and this function calls it again with the right one.

    *object_key*: the object as far as the caller knows it.  The process that runs the task knows
    it, so only others need two calls.  *has_line*: tasks may wait for it.  Who does not know the
    object does not know that either, and looks.
    """
    while True:
        lock = keys_of.lock(object_key) if object_key else keys_of.none
        step = Step(transition, [*keys, lock], [*args, object_key])
        if has_line:
            answer = run_freeing(
                caller, keys_of, step, object_key, on_next, patience_seconds, next_up=next_up
            )
        else:
            answer = caller.run(step, patience_seconds)
        if not isinstance(answer, OtherObject):
            return answer
        object_key, has_line, next_up = answer.object_key, True, None
