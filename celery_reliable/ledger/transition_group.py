"""The base of the classes that make up the ledger."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from celery_reliable.ledger.answers import (
    CallUpAnswer,
    Held,
    Next,
    OtherObject,
    PlaceAnswer,
    Troubled,
)
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.calls import Calls
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import A, Step, Together, encoded
from celery_reliable.model import Claim, NextUp

__all__ = [
    "STOPPING_LOOK_MS",
    "Ending",
    "OnNext",
    "TransitionGroup",
    "call_freeing_lock",
    "hand_over_step",
    "line_of",
    "place_step",
    "run_freeing",
    "slots",
]


def slots(object_key: str, places: int) -> list[str]:
    """Return what the places of an object are called; each has a lock of its own.

    The first is called as the object: it is the lock of an object that one task has at a time.
    """
    return [object_key, *(f"{object_key}#{n}" for n in range(2, places + 1))]


def place_step(
    calls: Calls,
    object_key: str,
    places: int,
    task_id: str,
    token: str,
    due_in_ms: int,
    *,
    attempt: int | None = 0,
    worker: str = "",
    is_new: bool = False,
    seen: Sequence[str] = (),
    queue: str = "",
    own: str = "",
) -> Step[PlaceAnswer]:
    """Return the call by which a task asks for a place of an object; *own*: the one that its record
    notes, where there are fewer by now.  Without a *task_id* it is who stands in the line first;
    without an *attempt* it is that of the claim in the same step.
    """
    keys, named = calls.keys, slots(object_key, places)
    values = [*seen, *[""] * places][:places]
    holders = [one.partition(":")[2] for one in values]
    locks, about = [], []
    for slot, value, holder in zip(named, values, holders, strict=True):
        locks += [keys.lock(slot), keys.record(holder) if holder else keys.none]
        about += [slot, value]
    if own:
        locks.append(keys.lock(own))
    return calls.place(
        record=keys.record(task_id),
        id=task_id,
        object=object_key,
        attempt=attempt,
        token=token,
        worker=worker,
        is_new=is_new,
        due_in_ms=due_in_ms,
        queue=queue,
        is_sent=bool(queue),
        places=locks,
        seen=about,
    )


def hand_over_step(calls: Calls, object_key: str, next_up: NextUp) -> Step[PlaceAnswer]:
    """Return the call by which whoever frees a place gives it to the one who stands there first.

    Nothing happens if that one may not be sent as it is.
    """
    return place_step(
        calls, object_key, next_up.places, "", "", next_up.due_in_ms, queue=next_up.queue
    )


#: Called with an object that may be free and the task that stands in its line first.
OnNext = Callable[[str, str], None]


def line_of(object_key: str) -> str:
    """Return the object whose place this is: places but the first have a number behind it."""
    return object_key.partition("#")[0]


def run_freeing(
    caller: Caller,
    calls: Calls,
    step: Step[A],
    object_key: str,
    on_next: OnNext | None,
    patience_seconds: float | None = None,
    *,
    has_line: bool = True,
    next_up: NextUp | None = None,
    along: Step[Any] | None = None,
) -> A:
    """Run a step that may free an object.  If it *has_line*, *next_up* is sent in the same step, or
    the first of its line is due.

    Tells *on_next* of that one, who could send it at once.  *along*: a step that goes along with
    it, behind all that.  Raises as `Caller.run`.
    """
    called = call_up_step(calls, object_key) if has_line else None
    if called is not None:
        if next_up is not None:
            step = Together(step, hand_over_step(calls, line_of(object_key), next_up))
        step = Together(step, called)
    if along is not None:
        step = Together(step, along)
    answer = caller.run(step, patience_seconds)
    if called is None or on_next is None or isinstance(answer, OtherObject | Troubled):
        return answer
    if isinstance(called.answer, Next):
        on_next(object_key, called.answer.task_id)
    return answer


def call_up_step(calls: Calls, object_key: str) -> Step[CallUpAnswer]:
    """Return the call that makes the first of an object's line due, if the object is free."""
    return calls.call_up(place=object_key, object=line_of(object_key))


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


def call_freeing_lock(
    caller: Caller,
    calls: Calls,
    make: Callable[..., Step[A]],
    *,
    ending: Ending | None = None,
    object_key: str = "",
    has_line: bool = False,
    next_up: NextUp | None = None,
    on_next: OnNext | None = None,
    along: Step[Any] | None = None,
    patience_seconds: float | None = None,
) -> A:
    """Run a script that is given the task's object and its lock.  Raises as `Caller.run`.

    *make*: returns the call; it is given the object, and how the task ends.

    Only the record knows for certain which object the task has locked, and a script may not make
    a key of what it reads.  So the caller gives the key.  If it is not the right one, the script
    changes nothing and answers OtherObject, and this function calls it again with the right one.

    *object_key*: the object as far as the caller knows it.  The process that runs the task knows
    it, so only others need two calls.  *has_line*: tasks may wait for it.  Who does not know the
    object does not know that either, and looks.

    *ending*: how the task ends, for a script that keeps what happened to it.  Most tasks have no
    history.  Of these the script is told neither where such things are kept nor what to note, so
    that they pay nothing for it.  A script that was not told, and finds a history, changes nothing
    and answers Troubled, and is called again.
    """
    is_kept = ending is not None and ending.is_kept
    while True:
        about: dict[str, Any] = {}
        if ending is not None and is_kept:
            about = {"outcome": ending.outcome, "by": ending.by, "most": ending.most}
        answer = run_freeing(
            caller,
            calls,
            make(object=object_key, **about),
            object_key,
            on_next,
            patience_seconds,
            has_line=has_line,
            next_up=next_up,
            along=along,
        )
        along = None
        if isinstance(answer, OtherObject):
            object_key, has_line, next_up = answer.object_key, True, None
        elif isinstance(answer, Troubled):
            is_kept = True
        else:
            return answer


#: When the sweeper looks whether a called-off attempt was stopped; usually its worker has told.
STOPPING_LOOK_MS = 10_000


class TransitionGroup:
    """Some of the ledger's transitions.  A method is named after its script."""

    connector: Connector
    keys: Keys
    calls: Calls
    #: The generation of the last record; learned from the first refusal.
    generation: str
    #: How many tasks that have ended are kept.
    keep_ended: int
    #: One in so many is kept though nothing happened to it; 0: none.
    sample_one_in: int
    #: Told who stands first in the line of an object that was freed; None: a pass finds out.
    on_next: OnNext | None
    _caller: Caller

    def is_outlived(
        self, task_id: str, worker: str, *, patience_seconds: float | None = None
    ) -> bool:
        """Whether *worker*, which had to stop an attempt of the task, is dead or forgotten."""
        make = partial(self.calls.outlive, id=task_id, worker=worker)
        answer = self._free(make, patience_seconds=patience_seconds)
        return not isinstance(answer, Held)

    def _free(
        self,
        make: Callable[..., Step[A]],
        claim: Claim | None = None,
        *,
        ending: Ending | None = None,
        next_up: NextUp | None = None,
        along: Step[Any] | None = None,
        patience_seconds: float | None = None,
    ) -> A:
        """Do what `call_freeing_lock` does, for the object of *claim* as far as that is known."""
        return call_freeing_lock(
            self._caller,
            self.calls,
            make,
            ending=ending,
            object_key=claim.object_key if claim is not None else "",
            has_line=claim is not None and claim.has_line,
            next_up=next_up,
            on_next=self.on_next,
            along=along,
            patience_seconds=patience_seconds,
        )

    def _ending(self, task_id: str, outcome: str, by: str, *, is_kept: bool = False) -> Ending:
        one_in = self.sample_one_in
        is_kept = is_kept or (one_in > 0 and zlib.crc32(encoded(task_id)) % one_in == 0)
        return Ending(outcome, by, self.keep_ended, is_kept)
