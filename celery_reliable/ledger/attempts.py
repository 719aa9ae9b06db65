"""Transitions that begin an attempt, let it go on, and give it a place of its object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from celery_reliable.ledger.answers import (
    ClaimAnswer,
    Claimed,
    Ended,
    PlaceAnswer,
    TouchAnswer,
    UnlockAnswer,
    Unrecorded,
    WaitAnswer,
)
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.publications import sender_of
from celery_reliable.ledger.scripts import Script, inside, script
from celery_reliable.ledger.transitions import (
    Argument,
    Step,
    as_one,
    encoded,
    transition,
)
from celery_reliable.ledger.workers import ALONE_MS
from celery_reliable.model import Claim, ClaimRequest, EarlyClaim, Room

__all__ = [
    "Attempts",
    "Filing",
    "TakeStep",
    "TakeSteps",
    "TakenMessage",
    "taking_script",
]


#: Messages of more bytes are not looked into by the script, which would keep others waiting.
_LONGEST = 256 * 1024


class Filing(Protocol):
    """Where messages are taken from, and where they are filed.  Keys are whole."""

    #: The key of the unacked hash.
    unacked: str
    #: The key of the list of unacked hashes, and the name that the hash has there.
    listed: str
    name: str
    #: The names of the queues, as an unacked hash has them.
    names: Sequence[str]
    #: Their lists: all of the first priority, then all of the next.
    lists: Sequence[str]
    #: Names of tasks whose messages are not claimed as they are taken.
    cold: Sequence[str]


@dataclass(frozen=True)
class TakenMessage:
    """What was taken.  *message* is None when nothing was: the queues are empty, or the worker has
    lost its lease.  *answer* is None when the task was not claimed.
    """

    queue: str = ""
    message: bytes | None = None
    answer: ClaimAnswer | None = None
    has_lease: bool = True

    def claim(self, worker: str, token: str, asked_at: float) -> EarlyClaim | None:
        """Return the claim that was made with the taking; None when none was.

        *asked_at*: when that was asked for, by `clock.now`.
        """
        got = self.answer
        if not isinstance(got, Claimed):
            return None
        return EarlyClaim(got.attempt, got.losses, worker, token, asked_at, got.place)


class _Reading:
    """Reads the replies of ``take``, as a `Transition` does."""

    name = "take"

    def read(self, raw: Any, is_repeated: bool = False) -> TakenMessage:
        if raw in (b"empty", b"no_lease"):
            return TakenMessage(has_lease=raw == b"empty")
        told, _, message = raw.partition(b"\n")
        kind, queue, *claimed = json.loads(told)
        if kind != "asked":
            return TakenMessage(queue, message)
        word, *values = claimed
        answer = transition("claim").read((word.encode(), *values), is_repeated)
        return TakenMessage(queue, message, answer)


_READING: Any = _Reading()


class TakeStep(Step[Any]):
    """One taking.  Its answer is a `TakenMessage`."""

    answer: TakenMessage | None


class TakeSteps:
    """Makes the steps of one process that takes from the same queues: most of what each is told is
    the same, and is encoded once.
    """

    def __init__(
        self, text: str, keys: Sequence[str], args: Sequence[Argument], queues: Sequence[str]
    ) -> None:
        self._code = taking_script(text)
        self._keys = (self._code.sha, len(keys), *map(encoded, keys))
        told = (*args, len(queues), *queues)
        self._args = [encoded(one if isinstance(one, str) else str(one)) for one in told]

    def step(self, tag: str, *, done: Iterable[str], filed_ms: int) -> TakeStep:
        """Return the step that files the next message under *tag*, which is the token of its claim
        as well, and removes those that were filed under *done*.

        *filed_ms*: by the worker's clock.
        """
        ended = [one.encode() for one in done]
        call = (*self._keys, tag.encode(), b"%d" % filed_ms, *self._args, *ended)
        return TakeStep(_READING, self._code, call)


def taking_script(text: str) -> Script:
    """Return the broker's script *text* with the one of the ledger that it calls."""
    return inside(script("claim"), "take", text)


class Attempts(Part):
    """How a worker begins an attempt, also a process that takes its own messages; how the attempt
    asks for more time, and for a place of its object.

    A place is a lock, and an object that one task has at a time has one place.  It is held by a
    record, and freed by the script that ends its task, so it needs no expiry.  One whose record is
    gone keeps nobody out: both are on one server, which cannot lose one without the other.  The
    exception is an object that is kept after a success: that outlives the record, and expires.
    """

    def claim(
        self,
        request: ClaimRequest,
        *,
        message: str = "",
        behind: Step[WaitAnswer] | None = None,
        along: Step[PlaceAnswer] | None = None,
        patience_seconds: float | None = None,
    ) -> ClaimAnswer:
        """Begin an attempt, or return why not.

        *message*: the message as it was delivered.  Without it the answer is Unrecorded if there is
        no record and nothing proves that the task has ended; the caller asks again with it.
        *behind*: another step, which the claim follows in the same one.  *along*: one that follows
        the claim, where it follows none.  Each hears its own answer.
        """
        task = request.task
        claim = self.calls.claim(
            id=task.id,
            name=task.name,
            max_losses=task.max_losses,
            time_to_run_ms=task.time_to_run_ms,
            epoch=request.epoch,
            generation=request.generation,
            message=message,
            worker=request.worker,
            token=request.token,
            pid=request.pid,
            alone_ms=None if request.is_over else ALONE_MS,
            # Who knows of no strike on the task does not have them looked at.
            strikes=request.strikes,
            list=request.list_key if request.strikes else None,
        )
        if behind is not None:
            behind.answer = self._caller.run(as_one(behind, claim), patience_seconds)
            assert claim.answer is not None
            answer = claim.answer
        else:
            step = claim if along is None else as_one(claim, along)
            answer = self._caller.run(step, patience_seconds)
        is_asked = isinstance(answer, Unrecorded) and bool(request.generation)
        if is_asked and self.has_ended(
            request.task.id, request.generation, request.epoch, patience_seconds=patience_seconds
        ):
            return Ended()
        return answer

    def has_ended(
        self,
        task_id: str,
        generation: str,
        epoch: str = "",
        *,
        patience_seconds: float | None = None,
    ) -> bool:
        """Whether a message's generation and epoch prove that its task has ended."""
        sender, number = sender_of(epoch)
        step = self.calls.ended(id=task_id, generation=generation, sender=sender, number=number)
        return isinstance(self._caller.run(step, patience_seconds), Ended)

    def touch(
        self,
        claim: Claim,
        *,
        time_to_run_ms: int | None = None,
        is_concluding: bool = False,
        heir: str = "",
        patience_seconds: float | None = None,
    ) -> TouchAnswer:
        """Note something in the record of the running attempt, if it is still the current one.

        *time_to_run_ms*: it may run for so long from now on.  *is_concluding*: it is about to store
        its outcome, and no later call of a unique task is answered with it.  *heir* names a canvas
        that is about to be published: only a publication that carries it may take over the id.
        """
        step = self.calls.touch(
            id=claim.task_id,
            attempt=claim.attempt,
            token=claim.token,
            time_to_run_ms=time_to_run_ms,
            is_concluding=is_concluding,
            heir=heir,
        )
        return self._caller.run(step, patience_seconds)

    def take_place(
        self,
        room: Room,
        claim: Claim,
        *,
        due_in_ms: int,
        stands: bool = False,
        queue: str = "",
        patience_seconds: float | None = None,
    ) -> PlaceAnswer:
        """Take a place of an object for an attempt that has not begun its body.

        Without one it is Full; or the attempt ends without a trace, and its task is Standing in the
        line (*stands*).  Who is first there is looked at in *due_in_ms*.  *queue*: a list on this
        server, into which the message may be put as it is, when its turn has come.
        """
        step = self.calls.place(
            id=claim.task_id,
            object=room.object_key,
            places=room.places,
            is_own=room.is_own,
            attempt=claim.attempt,
            token=claim.token,
            worker=claim.worker,
            stands=stands,
            due_in_ms=due_in_ms,
            list=queue,
        )
        return self._caller.run(step, patience_seconds)

    def step_behind(
        self, request: ClaimRequest, room: Room, *, due_in_ms: int
    ) -> Step[PlaceAnswer]:
        """Return the call by which an attempt takes its place in the very step that begins it.

        Without a place the attempt asks again, by `take_place`.
        """
        return self.calls.place(
            id=request.task.id,
            object=room.object_key,
            places=room.places,
            is_own=room.is_own,
            token=request.token,
            worker=request.worker,
            due_in_ms=due_in_ms,
        )

    def free_place(
        self, object_key: str, claim: Claim, *, patience_seconds: float | None = None
    ) -> UnlockAnswer:
        """Free the place of an attempt that is over, but whose task goes on."""
        step = self.calls.unlock(
            id=claim.task_id, attempt=claim.attempt, token=claim.token, object=object_key
        )
        return self._caller.run(step, patience_seconds)

    def take_steps(
        self, text: str, queues: Filing, *, worker: str, slot: str, pid: int
    ) -> TakeSteps:
        """Return what makes the steps of a process of a worker that takes from these queues.

        *text*: the script of the broker's that takes.  *worker*: its id; empty where the queues are
        on another server, so that nothing is claimed with the taking.  *slot*: names who takes one
        message after the other, under tags whose last number grows.
        """
        return TakeSteps(
            text,
            [
                queues.unacked,
                queues.listed,
                self.keys.begin,
                self.keys.due,
                self.keys.meta,
                self.keys.worker(worker),
                self.keys.claims(worker),
                *queues.lists,
            ],
            [
                queues.name,
                worker,
                slot,
                pid,
                ALONE_MS,
                "\n".join(("", *queues.cold, "")),
                _LONGEST,
            ],
            queues.names,
        )

    def take(self, step: TakeStep, patience_seconds: float | None = None) -> TakenMessage:
        """Run such a step by itself.  Raises LedgerUnavailable and LedgerRefused."""
        answer: TakenMessage = self._caller.run(step, patience_seconds)
        return answer
