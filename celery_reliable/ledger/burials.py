"""The ledger's transitions to and from the dead letters: one method per transition, named after its
script.
"""

from __future__ import annotations

from celery_reliable.ledger.caller import Answer
from celery_reliable.ledger.reads import Reads
from celery_reliable.model import Claim, DeadLetter, Reason, Reply, WorkerLease

__all__ = ["STOPPING_LOOK_MS", "Burials"]

#: When to look whether what was called off has been stopped: usually its worker says so before.
STOPPING_LOOK_MS = 10_000


class Burials(Reads):
    """What becomes a dead letter, and what becomes of it."""

    #: The generation of the last record; learned from the first refusal.
    generation: str

    def bury(
        self,
        claim: Claim,
        reason: Reason,
        *,
        exception: str,
        traceback: str,
        is_owed: bool = False,
        object_key: str | None = None,
        patience_seconds: float | None = None,
    ) -> Answer:
        """End an attempt as a dead letter.  *is_owed*: Celery has still to be told.  *object_key*:
        of the object that is freed with it.
        """
        return self._bury(
            claim.task_id,
            claim,
            reason,
            exception,
            traceback,
            "",
            "",
            is_owed,
            "",
            False,
            patience_seconds,
            object_key,
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
    ) -> Answer:
        """Dead-letter a message that no attempt was made of, unless it is a late copy.

        *epoch*: its own.  *is_unproved*: a record that is missing does not prove that its task has
        ended; without it UNRECORDED is answered then, and `Ledger.has_ended` tells.
        """
        return self._bury(
            task_id,
            None,
            reason,
            exception,
            traceback,
            message,
            name,
            False,
            epoch,
            is_unproved,
            patience_seconds,
        )

    def _bury(
        self,
        task_id: str,
        claim: Claim | None,
        reason: Reason,
        exception: str,
        traceback: str,
        message: str,
        name: str,
        is_owed: bool,
        epoch: str,
        is_unproved: bool,
        patience_seconds: float | None,
        object_key: str | None = None,
    ) -> Answer:
        worker = claim.worker if claim else ""
        return self._caller.call(
            "bury",
            [
                self.keys.record(task_id),
                self.keys.due,
                self.keys.claims(worker),
                self.keys.dead,
                self.keys.lock(object_key) if object_key else self.keys.none,
            ],
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
                "1" if object_key else "",
            ],
            patience_seconds,
        )

    def blame(
        self,
        lease: WorkerLease,
        cause: str,
        *,
        max_losses: int,
        due_in_ms: int,
        is_counted: bool = True,
    ) -> Answer:
        """Count a loss of the task whose message a dead worker was opening: still queued, or
        buried when the budget is spent.  *is_counted* False: it may have died of something that it
        ran, so that the next death which is clear makes up for this one.
        """
        return self._caller.call(
            "blame",
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
                "1" if is_counted else "",
            ],
        )

    def read(self, letter: DeadLetter, reader: str, *, is_over: bool = False) -> Answer:
        """Note that *reader* is about to read a dead letter's message, or *is_over*: has done so
        and lives.  SEALED: somebody died of that.
        """
        return self._caller.call(
            "read",
            [self.keys.record(letter.task_id)],
            [letter.buried_ms, reader, "1" if is_over else ""],
        )

    def replay(self, task_id: str, *, epoch: str, message: str, due_in_ms: int) -> Answer:
        """Return a dead letter to queued, with *message*, its counters at zero."""
        return self._caller.call(
            "replay",
            [self.keys.record(task_id), self.keys.due, self.keys.dead, self.keys.meta],
            [task_id, epoch, self.generation, message, due_in_ms],
        )

    def discard(self, task_id: str, *, buried_ms: int | None = None) -> Answer:
        """Remove a dead letter for good; *buried_ms*: only the one that was seen."""
        return self._caller.call(
            "discard",
            [self.keys.record(task_id), self.keys.due, self.keys.dead],
            [task_id, "" if buried_ms is None else buried_ms, STOPPING_LOOK_MS],
        )

    def is_outlived(
        self, task_id: str, worker: str, *, patience_seconds: float | None = None
    ) -> bool:
        """Whether what *worker* was to stop of a task is over: it is dead or forgotten."""
        answer = self._caller.call(
            "outlive",
            [self.keys.record(task_id), self.keys.due, self.keys.worker(worker)],
            [task_id, worker],
            patience_seconds,
        )
        return answer.reply is not Reply.HELD

    def announced(self, task_id: str, buried_ms: int) -> Answer:
        """Note that what a burial owed Celery has been paid."""
        return self._caller.call(
            "announce", [self.keys.record(task_id), self.keys.due], [task_id, buried_ms]
        )
