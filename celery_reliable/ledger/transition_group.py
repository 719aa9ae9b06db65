"""The base of the classes that make up the ledger."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from celery_reliable.ledger.answers import CallUpAnswer, OutliveAnswer, PlaceAnswer
from celery_reliable.ledger.answers.objects import Next, OtherObject
from celery_reliable.ledger.answers.tasks import Held, Troubled
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.transitions import A, Argument, Step, Together, Transition, encoded
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


#: Called with an object that may be free and the task that stands in its line first.
OnNext = Callable[[str, str], None]

_CALL_UP: Transition[CallUpAnswer] = Transition("call_up", CallUpAnswer)


def line_of(object_key: str) -> str:
    """Return the object whose place this is: places but the first have a number behind it."""
    return object_key.partition("#")[0]


def run_freeing(
    caller: Caller,
    keys_of: Keys,
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
    it, behind all that.  Raises as `Caller.call`.
    """
    called = call_up_step(keys_of, object_key) if has_line else None
    if called is not None:
        if next_up is not None:
            step = Together(step, hand_over_step(keys_of, line_of(object_key), next_up))
        step = Together(step, called)
    if along is not None:
        step = Together(step, along)
    answer = caller.run(step, patience_seconds)
    if called is None or on_next is None or isinstance(answer, OtherObject | Troubled):
        return answer
    if isinstance(called.answer, Next):
        on_next(object_key, called.answer.task_id)
    return answer


def call_up_step(keys_of: Keys, object_key: str) -> Step[CallUpAnswer]:
    """Return the call that makes the first of an object's line due, if the object is free."""
    line = keys_of.waiting(line_of(object_key))
    return Step(_CALL_UP, [keys_of.lock(object_key), line, keys_of.due], [])


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
    keys_of: Keys,
    transition: Transition[A],
    keys: Sequence[str],
    args: Sequence[Argument],
    *,
    ending: Ending | None = None,
    object_key: str = "",
    has_line: bool = False,
    next_up: NextUp | None = None,
    on_next: OnNext | None = None,
    along: Step[Any] | None = None,
    patience_seconds: float | None = None,
) -> A:
    """Run a script with the lock of the task's object as its last key.  Raises as `Caller.call`.

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
        lock = keys_of.lock(object_key) if object_key else keys_of.none
        where: list[str] = []
        about: list[Argument] = []
        if ending is not None and is_kept:
            where = [keys_of.ended, keys_of.ended_at]
            about = [ending.outcome, ending.by, ending.most]
        answer = run_freeing(
            caller,
            keys_of,
            Step(transition, [*keys, lock, *where], [*args, object_key, *about]),
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

_OUTLIVE: Transition[OutliveAnswer] = Transition("outlive", OutliveAnswer, frees=True)


class TransitionGroup:
    """Some of the ledger's transitions.  A method is named after its script."""

    connector: Connector
    keys: Keys
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
        answer = self._free(
            _OUTLIVE,
            [self.keys.record(task_id), self.keys.worker(worker)],
            [task_id, worker],
            patience_seconds=patience_seconds,
        )
        return not isinstance(answer, Held)

    def _free(
        self,
        transition: Transition[A],
        keys: Sequence[str],
        args: Sequence[Argument],
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
            self.keys,
            transition,
            keys,
            args,
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
