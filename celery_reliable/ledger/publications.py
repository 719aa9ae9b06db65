"""Transitions that publish a task, and those that take a publication back."""

from __future__ import annotations

from celery_reliable.ledger import rows
from celery_reliable.ledger.answers import CancelAnswer, PlaceAnswer, RecordAnswer, WithdrawAnswer
from celery_reliable.ledger.answers.tasks import Gone, OtherGeneration, Stale, Withdrawn
from celery_reliable.ledger.ended_tasks import call_ending_task
from celery_reliable.ledger.formats import refuse_newer
from celery_reliable.ledger.lock_release import call_freeing_lock
from celery_reliable.ledger.places import Places
from celery_reliable.ledger.senders import remembered_ms, sender_of
from celery_reliable.ledger.transition_group import STOPPING_LOOK_MS
from celery_reliable.ledger.transitions import Step, Together, Transition, encoded
from celery_reliable.model import Claim, Room, State, TaskRef

__all__ = ["Publications"]

_RECORD: Transition[RecordAnswer] = Transition("record", RecordAnswer)
_WITHDRAW: Transition[WithdrawAnswer] = Transition(
    "withdraw", WithdrawAnswer, repeated=(Gone, Withdrawn), frees=True
)
_CANCEL: Transition[CancelAnswer] = Transition("cancel", CancelAnswer, frees=True, keeps=True)

#: In the place of an epoch: what was called off has none.
_CALLED_OFF = "called_off"


class Publications(Places):
    """What becomes of a task before a worker has it."""

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
        waits_for: str = "",
        moved: str = "",
        if_exists: str = "",
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> RecordAnswer:
        """Record a publication before its message is sent.

        *epoch*: its name, from `senders`, which must be told once it is answered.  By it a late
        copy of this call is known, and after a restart of the server it proves that the publication
        was recorded.  *due_in_ms*: when somebody looks whether a worker has claimed it.

        *claim*: the running attempt that publishes its own id; *waits_for*: the
        object that another task has, so that its body has not begun and the next attempt gets the
        same number.  *queue*: a list on this server, to which the
        message is pushed in the same step.  *is_used*: an earlier task of the same id may have left
        a result.  *moved*: which workers an operator has named while *claim* ran, as an answer has
        told.  *heir*: names the canvas that the task is a member of, if that took over an id.
        *if_exists*: "keep" and "refuse" leave a dead letter of this id alone, "replay_dead" notes
        that it is replayed.

        Waits *patience_seconds*, but only *undone_patience_seconds* while it is certain that
        nothing was recorded.
        """
        step = self._record_step(
            task,
            epoch,
            state,
            due_in_ms,
            message,
            claim,
            queue,
            is_used,
            heir,
            waits_for,
            moved,
            if_exists,
        )
        return self._recorded(step, patience_seconds, undone_patience_seconds)

    def record_for_place(
        self,
        task: TaskRef,
        room: Room,
        *,
        epoch: str,
        due_in_ms: int,
        message: str,
        queue: str = "",
        is_used: bool = False,
        heir: str = "",
        if_exists: str = "",
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> tuple[RecordAnswer, PlaceAnswer | None]:
        """Record a publication that takes a place of an object; without one it stands in the line.

        As `record`, in one step with that.  With a place it is to be sent, or it was put into
        *queue*.
        """
        recorded = self._record_step(
            task,
            epoch,
            State.PARKED,
            due_in_ms,
            message,
            None,
            "",
            is_used,
            heir,
            "",
            "",
            if_exists,
        )
        placed = self.publication_step(
            room.object_key, room.places, task.id, epoch, due_in_ms=due_in_ms, queue=queue
        )
        answer = self._recorded(
            Together(recorded, placed), patience_seconds, undone_patience_seconds
        )
        return answer, placed.answer

    def _recorded(
        self,
        step: Step[RecordAnswer],
        patience_seconds: float | None,
        undone_patience_seconds: float | None,
    ) -> RecordAnswer:
        answer = self._caller.run(step, patience_seconds, undone_patience_seconds)
        if isinstance(answer, OtherGeneration):
            refuse_newer(answer.format, self._caller.shown, self.keys.meta, "record")
        return answer

    def _record_step(
        self,
        task: TaskRef,
        epoch: str,
        state: State,
        due_in_ms: int,
        message: str,
        claim: Claim | None,
        queue: str,
        is_used: bool,
        heir: str,
        waits_for: str,
        moved: str,
        if_exists: str,
    ) -> Step[RecordAnswer]:
        sender, number = sender_of(epoch)
        return Step(
            _RECORD,
            [
                self.keys.record(task.id),
                self.keys.due,
                self.keys.meta,
                self.keys.claims(claim.worker if claim else ""),
                self.keys.dead,
                queue or self.keys.none,
                self.keys.sent(sender) if sender else self.keys.none,
            ],
            [
                task.id,
                epoch,
                self.generation,
                state.value,
                due_in_ms,
                message,
                task.name,
                claim.attempt if claim else "",
                "" if task.max_losses is None else task.max_losses,
                claim.token if claim else "",
                remembered_ms(number),
                "1" if is_used else "",
                heir,
                number,
                "1" if queue else "",
                waits_for,
                moved,
                if_exists,
            ],
        )

    def withdraw(
        self, task_id: str, epoch: str, *, patience_seconds: float | None = None
    ) -> WithdrawAnswer:
        """Take back a publication whose message could not be sent, and free its object."""
        return call_freeing_lock(
            self._caller,
            self.keys,
            _WITHDRAW,
            [self.keys.record(task_id), self.keys.due],
            [task_id, epoch],
            on_next=self.on_next,
            patience_seconds=patience_seconds,
        )

    def cancel(
        self,
        task_id: str,
        *,
        epoch: str,
        is_revoked: bool = False,
        outcome: str = "REVOKED",
        by: str = "",
        is_kept: bool = False,
        patience_seconds: float | None = None,
    ) -> CancelAnswer:
        """Call off a publication that nobody runs, and free its object.

        If a worker has still to stop an attempt of it, the record and the lock stay until it has.
        *is_revoked*: a task that runs is marked, so that it does not run again.
        *outcome* and *by*: as `Outcomes.settle`; *is_kept*: that is kept, even of a task to which
        nothing happened.
        """
        return call_ending_task(
            self._caller,
            self.keys,
            _CANCEL,
            [self.keys.record(task_id), self.keys.due],
            [task_id, epoch, STOPPING_LOOK_MS, int(is_revoked)],
            how=self._ending(task_id, outcome, by, is_kept=is_kept),
            on_next=self.on_next,
            patience_seconds=patience_seconds,
        )

    def revoke(
        self,
        task_id: str,
        *,
        is_noted: bool = False,
        by: str = "",
        is_kept: bool = False,
        patience_seconds: float | None = None,
    ) -> CancelAnswer:
        """Call off the current publication of an id: a retry and the last member of a canvas are
        other publications than the first.

        *is_noted*: a task that runs is marked, so that it does not run again.  *by* and *is_kept*:
        as `cancel`.  What is published after this has returned is never called off, even if a
        command arrives late.
        """
        key = encoded(self.keys.record(task_id))
        while True:
            ((epoch, is_called_off),) = self._caller.read(
                "find",
                lambda client: rows.hmget_all(client, [key], ("epoch", "called_off")),
                patience_seconds,
            )
            if is_called_off:
                return Gone()
            answer = self.cancel(
                task_id,
                epoch=(epoch or b"").decode(),
                is_revoked=is_noted,
                by=by,
                is_kept=is_kept,
                patience_seconds=patience_seconds,
            )
            if not isinstance(answer, Stale):
                return answer

    def let_go(self, task_id: str) -> CancelAnswer:
        """Remove the record of a task that was called off, and of which nothing runs any more.

        If the id was published again meanwhile, nothing is changed.
        """
        return self.cancel(task_id, epoch=_CALLED_OFF)
