"""Transitions that publish a task, and the one that takes a publication back."""

from __future__ import annotations

from celery_reliable.ledger.answers import PlaceAnswer, RecordAnswer, WithdrawAnswer
from celery_reliable.ledger.answers.tasks import Gone, OtherGeneration, Withdrawn
from celery_reliable.ledger.formats import refuse_newer
from celery_reliable.ledger.lock_release import call_freeing_lock
from celery_reliable.ledger.places import Places
from celery_reliable.ledger.senders import remembered_ms, sender_of
from celery_reliable.ledger.transitions import Step, Together, Transition
from celery_reliable.model import Claim, Room, State, TaskRef

__all__ = ["Publications"]

_RECORD: Transition[RecordAnswer] = Transition("record", RecordAnswer)
_WITHDRAW: Transition[WithdrawAnswer] = Transition(
    "withdraw", WithdrawAnswer, repeated=(Gone, Withdrawn), frees=True
)


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
            claim=claim,
            queue=queue,
            is_used=is_used,
            heir=heir,
            waits_for=waits_for,
            moved=moved,
            if_exists=if_exists,
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
            is_used=is_used,
            heir=heir,
            if_exists=if_exists,
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
        *,
        is_used: bool,
        heir: str,
        if_exists: str,
        claim: Claim | None = None,
        queue: str = "",
        waits_for: str = "",
        moved: str = "",
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
