"""Transitions of the sweeper on records that are due: their task may be lost, late or stuck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from celery_reliable.ledger.answers import PostponeAnswer, ResendAnswer
from celery_reliable.ledger.answers.tasks import Batch, Held
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import Step, Transition
from celery_reliable.model import Due

__all__ = ["AS_IT_IS", "DueRecords", "Resent"]

_DUE: Transition[Batch] = Transition("due", Batch)
_RESEND: Transition[ResendAnswer] = Transition("resend", ResendAnswer)
_POSTPONE: Transition[PostponeAnswer] = Transition("postpone", PostponeAnswer)


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


class DueRecords(TransitionGroup):
    """What the sweeper does with records that are due."""

    def due(self, limit: int) -> Batch:
        """Return the server's time and at most *limit* records that are due, the oldest first."""
        return self._caller.call(_DUE, [self.keys.due], [limit])

    def resend(
        self, due: Due, *, due_in_ms: int, stored: str = "", message: Resent = AS_IT_IS
    ) -> ResendAnswer:
        """Take the right to send an overdue task again.  The answer has its message.

        It is due again in *due_in_ms*.  The answer is Held while a living worker has to stop an
        attempt of it.  *stored*: names a result that is there but does not prove that this task has
        ended.

        *message*: takes the place of the one in the record, as a worker was chosen.
        """
        answer = self._resend(due, due_in_ms, stored, message)
        if isinstance(answer, Held) and self.is_outlived(due.task_id, answer.owner):
            answer = self._resend(due, due_in_ms, stored, message)
        return answer

    def resend_all(self, dues: Sequence[Due], *, due_in_ms: int) -> list[ResendAnswer]:
        """Take the right to send each of many tasks again, as they are, in two round trips.

        As `resend`; but what is Held was not looked at any further.
        """
        return self._caller.run_all([self._resending(due, due_in_ms) for due in dues])

    def _resend(self, due: Due, due_in_ms: int, stored: str, message: Resent) -> ResendAnswer:
        return self._caller.run(self._resending(due, due_in_ms, stored, message))

    def _resending(
        self, due: Due, due_in_ms: int, stored: str = "", message: Resent = AS_IT_IS
    ) -> Step[ResendAnswer]:
        return Step(
            _RESEND,
            [
                self.keys.record(due.task_id),
                self.keys.due,
                self.keys.unplaced if message.text else self.keys.none,
            ],
            [
                due.task_id,
                due.due_ms,
                due_in_ms,
                stored,
                message.text,
                message.epoch,
                message.next_epoch,
            ],
        )

    def postpone(self, due: Due, *, due_in_ms: int, is_unsent: bool = False) -> PostponeAnswer:
        """Let a record be due in *due_in_ms*.  *is_unsent*: the resend before could not be sent."""
        return self._caller.call(
            _POSTPONE,
            [self.keys.record(due.task_id), self.keys.due],
            [due.task_id, due.due_ms, due_in_ms, int(is_unsent)],
        )

    def postpone_all(self, later: Sequence[tuple[Due, int]]) -> None:
        """Let each of many records be due again after its own time, in ms."""
        self._caller.call_all(
            _POSTPONE,
            [
                (
                    [self.keys.record(due.task_id), self.keys.due],
                    [due.task_id, due.due_ms, due_in_ms, 0],
                )
                for due, due_in_ms in later
            ],
        )
