"""Transitions that publish a task, and the one that takes a publication back."""

from __future__ import annotations

import os
import re
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from celery_reliable.ledger.answers import (
    PostponeAnswer,
    RecordAnswer,
    ResendAnswer,
)
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Claim, Due, Room, State, TaskRef

__all__ = [
    "AS_IT_IS",
    "Publications",
    "Resent",
    "Senders",
    "dues_of",
    "sender_of",
]

_EPOCH = re.compile(r"[0-9]+-[0-9a-f]{8}-([0-9a-f]{16})-([0-9]{1,15})")

#: The ledger remembers a sender for one hour for each publication, for a day at the most.  So a
#: process that publishes little leaves its key for a short time only.
_REMEMBERED_MS = 3_600_000
_LONGEST_REMEMBERED_MS = 24 * _REMEMBERED_MS


class Senders:
    """The senders of one process, for any of its threads.

    A sender numbers its publications, and begins one only after the one before was answered.  So
    if the ledger knows a sender's number 7, it has recorded the numbers 1 to 7, whatever it has
    lost since.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        #: Senders that no thread uses now, with the number of their last publication.
        self._idle: deque[tuple[str, int]] = deque()

    def new_epoch(self, attempt: int) -> str:
        """Return the name of a publication: attempt (0 for none), nonce, sender and number.

        The nonce differs between two copies of one process, which a cloned machine has.
        """
        if self._pid != os.getpid():
            self._pid, self._idle = os.getpid(), deque()
        try:
            name, count = self._idle.pop()
        except IndexError:
            name, count = secrets.token_hex(8), 0
        return f"{attempt}-{secrets.token_hex(4)}-{name}-{count + 1}"

    def answered(self, epoch: str) -> None:
        """Let a sender be used again, now that the ledger has answered its publication.

        A sender whose publication was not answered is never used again: the call may arrive late.
        """
        name, number = sender_of(epoch)
        if number is not None:
            self._idle.append((name, number))


def sender_of(epoch: str) -> tuple[str, int | None]:
    """Return the sender and the number in an epoch; empty and None if it has none."""
    found = _EPOCH.fullmatch(epoch)
    return (found[1], int(found[2])) if found else ("", None)


@dataclass(frozen=True)
class Resent:
    """A message that takes the place of the one in a record.

    Attributes:
        epoch: that the record has.
        next_epoch: that it has from then on: another one, if what was sent before is to be stale.
    """

    text: str = ""
    epoch: str = ""
    next_epoch: str = ""


AS_IT_IS = Resent()


def dues_of(ids_and_times: Sequence[str]) -> list[Due]:
    """Return what a script has told of due records."""
    return [Due(*one) for one in zip(ids_and_times[::2], ids_and_times[1::2], strict=True)]


class Publications(Part):
    """What becomes of a task before a worker has it, and where nobody has come for it."""

    #: The generation of the last record; learned from the first refusal.
    generation: str

    def record(
        self,
        task: TaskRef,
        *,
        epoch: str,
        state: State,
        due_in_ms: int,
        message: str,
        claim: Claim | None = None,
        queue: str = "",
        is_used: bool = False,
        heir: str = "",
        if_exists: str = "",
        room: Room | None = None,
        unique: str = "",
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> RecordAnswer:
        """Record a publication before its message is sent.

        *room*: the object of which it takes a place with that.  Without one it is Standing in the
        line, and not to be sent.  Of a *unique* task ("1") nothing is recorded then: LockedBy,
        KeptFor, StillStopping, or Concluding, which is asked again, with "2" if it has waited long
        enough.  That, and every call after an answer that refused, is another publication.

        *epoch*: its name, from `senders`, which must be told once it is answered.  By it a late
        copy of this call is known, and after a restart of the server it proves that the publication
        was recorded.  *due_in_ms*: when somebody looks whether a worker has claimed it; of one that
        waits for its time, that.

        *claim*: the running attempt that publishes its own id.  *queue*: a list on this server, to
        which the message is pushed in the same step, or at its moment.  *is_used*: an earlier task
        of the same id may have left a result.  *heir*: names the canvas that the task is a member
        of, if that took over an id.  *if_exists*: "keep" and "refuse" leave a dead letter of this
        id alone, "replay_dead" notes that it is replayed.

        Waits *patience_seconds*, but only *undone_patience_seconds* while it is certain that
        nothing was recorded.
        """
        sender, number = sender_of(epoch)
        remember_ms = min((number or 0) * _REMEMBERED_MS, _LONGEST_REMEMBERED_MS)
        step = self.calls.record(
            id=task.id,
            name=task.name,
            max_losses=task.max_losses,
            epoch=epoch,
            generation=self.generation,
            due_in_ms=due_in_ms,
            waits_for="time" if state is State.WAITING else "",
            message=message,
            worker=claim.worker if claim else "",
            attempt=claim.attempt if claim else None,
            token=claim.token if claim else "",
            sender=sender,
            number=number,
            remember_ms=None if number is None else remember_ms,
            used=is_used,
            heir=heir,
            queue=queue,
            is_sent=bool(queue),
            if_exists=if_exists,
            object=room.object_key if room else None,
            places=room.places if room else None,
            is_own=room is not None and room.is_own,
            unique=unique,
        )
        return self._caller.run(step, patience_seconds, undone_patience_seconds)

    def replay(
        self,
        task: TaskRef,
        *,
        epoch: str,
        message: str,
        due_in_ms: int,
        by: str = "",
        buried_ms: int | None = None,
    ) -> RecordAnswer:
        """Queue a dead letter again, with this *message*.  Its losses and retries begin at zero.

        *by*: the operator, for its history.  *buried_ms*: only if it was buried at this time.
        """
        return self._caller.run(
            self.calls.record(
                id=task.id,
                name=task.name,
                epoch=epoch,
                generation=self.generation,
                due_in_ms=due_in_ms,
                message=message,
                worker="",
                sender="",
                heir="",
                queue="",
                if_exists="replay",
                buried_ms=buried_ms,
                by=by,
            )
        )

    def due(self, limit: int) -> tuple[int, list[Due]]:
        """Return the ledger's time and at most *limit* records that are due, the oldest first."""
        answer = self._caller.run(self.calls.due(limit=limit))
        return answer.now_ms, dues_of(answer.ids_and_times)

    def resend(
        self,
        due: Due,
        *,
        due_in_ms: int,
        stored: str = "",
        message: Resent = AS_IT_IS,
        places: int | None = None,
        is_expired: bool = False,
    ) -> ResendAnswer:
        """Take the right to send an overdue task again.  The answer has its message.

        It is due again in *due_in_ms*.  The answer is Held while a living worker has to stop an
        attempt of it, and Standing where it waits for one of the *places* of an object, unless it
        *is_expired*.  *stored*: names a result that is there but does not prove that this task
        has ended.

        *message*: takes the place of the one in the record, as a worker was chosen.
        """
        step = self.calls.resend(
            id=due.task_id,
            due_ms=due.due_ms,
            due_in_ms=due_in_ms,
            stored=stored,
            message=message.text,
            epoch=message.epoch,
            next=message.next_epoch,
            places=places,
            is_expired=is_expired,
        )
        return self._caller.run(step)

    def postpone(self, due: Due, *, due_in_ms: int, is_unsent: bool = False) -> PostponeAnswer:
        """Let a record be due in *due_in_ms*.  *is_unsent*: the resend before could not be sent."""
        return self._caller.run(self._postponing(due, due_in_ms, is_unsent))

    def postpone_all(self, later: Sequence[tuple[Due, int]]) -> None:
        """Let each of many records be due again after its own time, in ms."""
        self._caller.run_all([self._postponing(due, due_in_ms) for due, due_in_ms in later])

    def _postponing(
        self, due: Due, due_in_ms: int, is_unsent: bool = False
    ) -> Step[PostponeAnswer]:
        return self.calls.postpone(
            id=due.task_id, due_ms=due.due_ms, due_in_ms=due_in_ms, is_unsent=is_unsent
        )
