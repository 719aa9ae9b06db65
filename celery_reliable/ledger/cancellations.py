"""Transitions that call off a task of which nothing runs, or discard it."""

from __future__ import annotations

from celery_reliable.ledger import rows
from celery_reliable.ledger.answers import CancelAnswer, DiscardAnswer
from celery_reliable.ledger.answers.tasks import Absent, Discarded, Gone, Stale
from celery_reliable.ledger.ended_tasks import call_ending_task
from celery_reliable.ledger.transition_group import STOPPING_LOOK_MS, TransitionGroup
from celery_reliable.ledger.transitions import Transition, encoded

__all__ = ["Cancellations"]

_CANCEL: Transition[CancelAnswer] = Transition("cancel", CancelAnswer, frees=True, keeps=True)
_DISCARD: Transition[DiscardAnswer] = Transition(
    "discard", DiscardAnswer, repeated=(Absent, Discarded), frees=True
)

#: In the place of an epoch: what was called off has none.
_CALLED_OFF = "called_off"


class Cancellations(TransitionGroup):
    """How a task that nobody runs is called off, and a dead letter discarded."""

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

    def discard(
        self,
        task_id: str,
        *,
        buried_ms: int | None = None,
        by: str = "",
        outcome: str = "DISCARDED",
        is_surplus: bool = False,
    ) -> DiscardAnswer:
        """Remove a dead letter for good.  *buried_ms*: only if it was buried at this time.

        *by*: the operator, or the reason, for those who ask later.  *is_surplus*: there are too
        many letters; `passes.meta` counts those that went for that.
        """
        return call_ending_task(
            self._caller,
            self.keys,
            _DISCARD,
            [self.keys.record(task_id), self.keys.due, self.keys.dead, self.keys.meta],
            [
                task_id,
                "" if buried_ms is None else buried_ms,
                STOPPING_LOOK_MS,
                "1" if is_surplus else "",
            ],
            how=self._ending(task_id, outcome, by, is_kept=True),
            on_next=self.on_next,
        )
