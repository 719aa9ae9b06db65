"""Scripts that remove the record of a task that ends, and keep what happened to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from celery_reliable.ledger.answers.objects import OtherObject
from celery_reliable.ledger.answers.tasks import Troubled
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.lock_release import OnNext, run_freeing
from celery_reliable.ledger.sent_along import SentAlong
from celery_reliable.ledger.transitions import A, Argument, Step, Transition
from celery_reliable.model import NextUp

__all__ = ["Ending", "call_ending_task"]


class Ending(NamedTuple):
    """How a task ends, for those who ask later.

    Attributes:
        outcome: a state of Celery's, "DISCARDED", or "TRIMMED".
        by: who ended it, and why; empty for the attempt itself.
        most: how many tasks that have ended are kept.
        is_kept: it is kept though nothing happened to it.
    """

    outcome: str
    by: str
    most: int
    is_kept: bool


def call_ending_task(
    caller: Caller | SentAlong,
    keys_of: Keys,
    transition: Transition[A],
    keys: Sequence[str],
    args: Sequence[Argument],
    *,
    how: Ending,
    object_key: str = "",
    has_line: bool = False,
    next_up: NextUp | None = None,
    on_next: OnNext | None = None,
    patience_seconds: float | None = None,
) -> A:
    """Run the script of *transition* as `call_freeing_lock` does, and keep what happened to the
    task.

    Most tasks have no history. Of these the script is told neither where such things are kept nor
    what to note, so that they pay nothing for it. A script that was not told, and finds a history,
    changes nothing and answers Troubled, and is called again.
    """
    is_kept = how.is_kept
    while True:
        lock = keys_of.lock(object_key) if object_key else keys_of.none
        where = [keys_of.ended, keys_of.ended_at] if is_kept else []
        about: list[Argument] = [how.outcome, how.by, how.most] if is_kept else []
        step = Step(transition, [*keys, lock, *where], [*args, object_key, *about])
        if has_line:
            answer = run_freeing(
                caller, keys_of, step, object_key, on_next, patience_seconds, next_up=next_up
            )
        else:
            answer = caller.run(step, patience_seconds)
        if isinstance(answer, OtherObject):
            object_key, has_line, next_up = answer.object_key, True, None
        elif isinstance(answer, Troubled):
            is_kept = True
        else:
            return answer
