"""The transitions to and from the dead letters."""

from __future__ import annotations

from celery_reliable.ledger.answers import (
    AnnounceAnswer,
    BlameAnswer,
    BuryAnswer,
    BuryMessageAnswer,
    DiscardAnswer,
    ReadAnswer,
    ReplayAnswer,
)
from celery_reliable.ledger.answers.tasks import Absent, Buried, Discarded, Gone
from celery_reliable.ledger.lock_release import call_freeing_lock
from celery_reliable.ledger.transition_group import STOPPING_LOOK_MS, TransitionGroup
from celery_reliable.ledger.transitions import A, Transition
from celery_reliable.model import Claim, DeadLetter, Reason, WorkerLease

__all__ = ["Burials"]

_BURY: Transition[BuryAnswer] = Transition("bury", BuryAnswer, repeated=(Gone, Buried), frees=True)
_BURY_MESSAGE: Transition[BuryMessageAnswer] = Transition("bury", BuryMessageAnswer, frees=True)
_BLAME: Transition[BlameAnswer] = Transition("blame", BlameAnswer, frees=True)
_READ: Transition[ReadAnswer] = Transition("read", ReadAnswer)
_REPLAY: Transition[ReplayAnswer] = Transition("replay", ReplayAnswer)
_DISCARD: Transition[DiscardAnswer] = Transition(
    "discard", DiscardAnswer, repeated=(Absent, Discarded), frees=True
)
_ANNOUNCE: Transition[AnnounceAnswer] = Transition("announce", AnnounceAnswer)


class Burials(TransitionGroup):
    """What becomes a dead letter, and what becomes of it."""

    def bury(
        self,
        claim: Claim,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        is_owed: bool = False,
        patience_seconds: float | None = None,
    ) -> BuryAnswer:
        """End an attempt as a dead letter, and free its object.  *is_owed*: Celery has still to be
        told.
        """
        return self._bury(
            _BURY,
            claim.task_id,
            reason,
            exception=exception,
            traceback=traceback,
            claim=claim,
            is_owed=is_owed,
            patience_seconds=patience_seconds,
        )

    def bury_message(
        self,
        task_id: str,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        message: str,
        name: str,
        epoch: str = "",
        is_unproved: bool = True,
        patience_seconds: float | None = None,
    ) -> BuryMessageAnswer:
        """Dead-letter a message that no attempt was made of, unless it is a late copy.

        *epoch*: its own.  *is_unproved*: a record that is missing does not prove that its task has
        ended; without it the answer is Unrecorded then, and `Ledger.has_ended` tells.
        """
        return self._bury(
            _BURY_MESSAGE,
            task_id,
            reason,
            exception=exception,
            traceback=traceback,
            message=message,
            name=name,
            epoch=epoch,
            is_unproved=is_unproved,
            patience_seconds=patience_seconds,
        )

    def _bury(
        self,
        transition: Transition[A],
        task_id: str,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        claim: Claim | None = None,
        is_owed: bool = False,
        message: str = "",
        name: str = "",
        epoch: str = "",
        is_unproved: bool = False,
        patience_seconds: float | None,
    ) -> A:
        worker = claim.worker if claim else ""
        return call_freeing_lock(
            self._caller,
            self.keys,
            transition,
            [self.keys.record(task_id), self.keys.due, self.keys.claims(worker), self.keys.dead],
            [
                task_id,
                claim.attempt if claim else "",
                reason.value,
                exception,
                traceback,
                message,
                name,
                claim.token if claim else "",
                "1" if is_owed else "",
                epoch,
                "1" if is_unproved else "",
            ],
            object_key=claim.object_key if claim else "",
            patience_seconds=patience_seconds,
        )

    def blame(
        self,
        lease: WorkerLease,
        cause: str,
        *,
        max_losses: int,
        due_in_ms: int,
    ) -> BlameAnswer:
        """Count a loss of the task whose message a dead worker was opening: still queued, or
        buried when the budget is spent.  Not counted where the verdict is that it may have died of
        something that it ran: the next death which is clear makes up for this one.
        """
        return call_freeing_lock(
            self._caller,
            self.keys,
            _BLAME,
            [
                self.keys.record(lease.opening_id),
                self.keys.due,
                self.keys.dead,
                self.keys.worker(lease.worker),
            ],
            [
                lease.opening_id,
                lease.opening_epoch,
                lease.worker,
                max_losses,
                due_in_ms,
                cause,
                "1" if lease.verdict.is_opening else "",
            ],
        )

    def read(self, letter: DeadLetter, reader: str, *, is_over: bool = False) -> ReadAnswer:
        """Note that *reader* is about to read a dead letter's message, or *is_over*: has done so
        and lives.  Sealed: somebody died of that.
        """
        return self._caller.call(
            _READ,
            [self.keys.record(letter.task_id)],
            [letter.buried_ms, reader, "1" if is_over else ""],
        )

    def replay(self, task_id: str, *, epoch: str, message: str, due_in_ms: int) -> ReplayAnswer:
        """Return a dead letter to queued, with *message*, its counters at zero."""
        return self._caller.call(
            _REPLAY,
            [self.keys.record(task_id), self.keys.due, self.keys.dead, self.keys.meta],
            [task_id, epoch, self.generation, message, due_in_ms],
        )

    def discard(self, task_id: str, *, buried_ms: int | None = None) -> DiscardAnswer:
        """Remove a dead letter for good; *buried_ms*: only the one that was seen."""
        return call_freeing_lock(
            self._caller,
            self.keys,
            _DISCARD,
            [self.keys.record(task_id), self.keys.due, self.keys.dead],
            [task_id, "" if buried_ms is None else buried_ms, STOPPING_LOOK_MS],
        )

    def announced(self, task_id: str, buried_ms: int) -> AnnounceAnswer:
        """Note that what a burial owed Celery has been paid."""
        return self._caller.call(
            _ANNOUNCE, [self.keys.record(task_id), self.keys.due], [task_id, buried_ms]
        )
