"""Attempts whose own process cannot report that they ended: counting them as lost."""

from __future__ import annotations

from celery import Celery, states

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import one_line
from celery_reliable.leases import Verdict
from celery_reliable.ledger import Ledger, answers
from celery_reliable.model import Cause, Claim, Reason, Record, SweepReport
from celery_reliable.options import is_kept_dead, is_reliable, keep_ms
from celery_reliable.recovery.announcements import (
    stored_end,
    tell_stored_end,
    try_to_announce,
)

__all__ = [
    "Losses",
]

_BY_RESULT = "its result was stored already"


class Losses:
    """Counts losses on behalf of processes and workers that are gone or stuck."""

    def __init__(self, app: Celery, ledger: Ledger) -> None:
        self.app = app
        self.config = reliable_of(app).config
        self.ledger = ledger

    def lose(
        self,
        claim: Claim,
        cause: Cause,
        report: SweepReport,
        *,
        has_message: bool,
        due_ms: str = "",
        verdict: Verdict | None = None,
        detail: str = "",
    ) -> int:
        """Count a loss; return how many the task has when it is queued again, else 0.

        An attempt whose outcome Celery has stored has ended with that instead.  *has_message*: a
        message of the task will be in its queue without anybody sending it.  *due_ms*: lose it only
        if the record is still due at that time.  The others are those of `Ledger.lose`.
        """
        record = self.ledger.find(claim.task_id)
        is_current = record is not None and record.token == claim.token
        if is_current and not due_ms and self.has_ended_as_stored(claim, report, record):
            return 0
        answer = self.ledger.lose(
            claim,
            cause,
            max_losses=self.config.max_losses,
            due_in_ms=self._due_in_ms(cause, has_message),
            is_taken=True,
            due_ms=due_ms,
            # A broker other than Redis returns what a dead worker had not acknowledged.  The
            # task is sent all the same: the claim refuses the second of two messages.
            is_unsent=not has_message,
            verdict=verdict,
            detail=detail,
        )
        if record is None or not is_current:
            return 0
        is_counted = verdict is None or verdict.charges(claim.task_id)
        return self._tell(record, answer, cause, claim.worker, report, is_counted=is_counted)

    def has_ended_as_stored(
        self, claim: Claim, report: SweepReport, record: Record | None = None
    ) -> bool:
        """Whether Celery has stored an outcome of an attempt that was stopped; it ends with that.

        Where not all can be told of it now, the claim stays, for a pass to try again.  *record*: as
        it was just found.
        """
        record = record or self.ledger.find(claim.task_id)
        if record is None or record.token != claim.token:
            return False
        end = stored_end(self.app, record)
        if not end:
            return False
        told = tell_stored_end(self.app, record, end)
        if told is None:
            return True
        task = self.app.tasks.get(record.name)
        is_success, result = end == states.SUCCESS, told[0]
        is_known = task is not None and is_reliable(task)
        if is_success or (is_known and not is_kept_dead(task, result)):
            kept_ms = keep_ms(task) if is_success else 0
            self.ledger.settle(claim, outcome=end, by=_BY_RESULT, keep_ms=kept_ms)
            return True
        error, traceback = one_line(result), told[1]
        answer = self.ledger.bury(claim, Reason.FAILED, exception=error, traceback=traceback)
        if isinstance(answer, answers.Buried):
            report.buried += 1
            events.task_buried(
                app=self.app,
                name=record.name,
                task_id=record.task_id,
                reason=Reason.FAILED,
                attempt=record.attempt,
                losses=record.losses,
                exception=error,
            )
        return True

    def _tell(
        self,
        record: Record,
        answer: object,
        cause: Cause,
        worker: str,
        report: SweepReport,
        *,
        is_counted: bool,
    ) -> int:
        """Report what the ledger answered to a loss, and announce the burial if it was the last;
        return the number of losses of a task that is queued again, else 0.
        """
        if not isinstance(answer, answers.Queued | answers.Spent):
            return 0
        report.lost += 1
        events.task_lost(
            app=self.app,
            name=record.name,
            task_id=record.task_id,
            attempt=record.attempt,
            worker=worker,
            losses=answer.losses,
            cause=cause,
            is_counted=is_counted,
        )
        if isinstance(answer, answers.Queued):
            return answer.losses
        report.buried += 1
        try_to_announce(self.app, self.ledger, record.task_id)
        return 0

    def _due_in_ms(self, cause: Cause, has_message: bool) -> int:
        """Return after how many ms a pass looks whether the task is back in its queue."""
        if has_message:
            return self.config.queued_ms
        if cause is Cause.STUCK:
            # Its worker lives and has to stop the attempt first; that takes a lease at most, as
            # the worker is declared dead otherwise.
            return self.config.lease_ms
        # The same pass sends it from its record.
        return 0
