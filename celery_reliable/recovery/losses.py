"""Attempts whose own process cannot report that they ended: counting them as lost."""

from __future__ import annotations

import time
from dataclasses import replace

from celery import Celery, states

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.broker import Entry
from celery_reliable.exceptions import one_line
from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.ledger import Ledger, answers
from celery_reliable.model import Cause, Claim, Reason, Record, State, SweepReport
from celery_reliable.options import is_kept_dead, is_reliable, keep_ms
from celery_reliable.recovery.announcements import (
    stored_end,
    tell_stored_end,
    try_to_announce,
)
from celery_reliable.recovery.broker_view import BrokerView, Job, logged_failures
from celery_reliable.recovery.returns import MOST_BYTES, Returns, is_over, stamp_of

__all__ = [
    "DeadWorkers",
    "Losses",
    "how_it_died",
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

    def blame(self, lease: WorkerLease, report: SweepReport) -> None:
        """Charge the death of a worker to the task whose message it was opening.  Where the worker
        may have died of something that it ran, the ledger only notes it.
        """
        record = self.ledger.find(lease.opening_id) if lease.opening_id else None
        if record is None:
            # A task without a record: its message counts the deaths, if it is returned.
            return
        cause = f"{Cause.OPENING.value}: its worker died while it opened the message"
        answer = self.ledger.blame(
            lease,
            f"{cause} ({how_it_died(lease)})",
            max_losses=self.config.max_losses,
            due_in_ms=self.config.queued_ms,
        )
        self._tell(
            record,
            answer,
            Cause.OPENING,
            lease.worker,
            report,
            is_counted=lease.verdict.is_opening,
        )

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


def how_it_died(lease: WorkerLease) -> str:
    """Return what is known of a worker's death, as text for people."""
    return f"{lease.cause}, pid {lease.facts.get('pid', '?')}"


class DeadWorkers(Job):
    """Recovers what dead workers held, in bounded steps that may be repeated."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView, losses: Losses) -> None:
        super().__init__(app, ledger, broker)
        self.losses = losses
        self.returns = Returns(app, ledger, broker)
        #: Unacked hashes that no lease names, and when that was first seen (monotonic seconds).
        self._ownerless: dict[str, float] = {}

    def recover(self, lease: WorkerLease, report: SweepReport) -> None:
        """Lose what a dead worker ran, return what it was delivered, and forget the worker when
        nothing is left.
        """
        batch = self.config.sweep_batch
        claims = list(self.ledger.workers.claims(lease.worker).values())
        unacked = (
            self.broker.unacked(lease.unacked) if lease.unacked and self.broker.is_redis else None
        )
        entries = unacked.heads(batch * 4) if unacked is not None else []
        in_unacked = {entry.task_id for entry in entries}
        if lease.verdict.may_be_opening:
            self.losses.blame(lease, report)
        if lease.verdict.word == "only" and self._has_unopened(entries, lease.verdict.charged):
            # It may have died of opening one of those, so the task that it ran is not charged.
            lease = replace(lease, verdict=replace(lease.verdict, charged=""))
        last: set[str] = set()
        for claim, _ in claims[:batch]:
            losses, is_charged = 0, lease.verdict.charges(claim.task_id)
            with logged_failures(
                report, "not_lost id=%s worker=%s error=%s", claim.task_id, lease.worker
            ):
                losses = self.losses.lose(
                    claim,
                    Cause.WORKER_LOST,
                    report,
                    has_message=claim.task_id in in_unacked,
                    verdict=lease.verdict,
                    detail=how_it_died(lease) + ("" if is_charged else f"; {_not_counted(lease)}"),
                )
            # A first loss may be the worker's fault.  A task that is lost again waits behind the
            # others: in front, it might kill worker after worker before they have their turn.
            if losses > 1:
                last.add(claim.task_id)
        done = 0
        if unacked is not None and entries:
            # Plain tasks' messages come last, as they may have to stay for long and fill the batch.
            entries.sort(key=lambda entry: not stamp_of(entry).epoch)
            done = self.returns.give_back(unacked, entries[:batch], report, lease=lease, last=last)
        report.is_full = report.is_full or len(claims) > batch or (0 < done < len(entries))
        # A thawed worker may go on with what must not be moved: its unacked hash is still its own.
        if len(claims) <= batch and (done == len(entries) or lease.is_thawed):
            left = len(unacked) if unacked is not None and not lease.is_thawed else 0
            # The hash stays on the list of hashes.  A worker that is alive after all may file
            # something before it hears that it was forgotten.
            self.ledger.workers.deregister(lease.worker, in_unacked=left)

    def _has_unopened(self, entries: list[Entry], task_id: str) -> bool:
        """Whether a worker held messages that nobody had begun, beside that of *task_id*, which it
        ran.

        Messages that came back from a dead worker do not count: that one of those is being opened
        is noted, and the verdict knows it.
        """
        others = [one for one in entries if one.task_id != task_id and not one.returns]
        others = others[: self.config.sweep_batch]
        task_ids = [one.task_id for one in others]
        records = self.ledger.find_in_groups(task_ids, most_bytes=MOST_BYTES)
        for entry, found in zip(others, records, strict=True):
            if not found.is_readable:
                continue
            record = found.record
            is_begun = record is not None and record.state is not State.QUEUED
            if not (is_begun or is_over(self.ledger, entry, record)):
                return True
        return False

    def recover_ownerless(self, leases: list[WorkerLease], report: SweepReport) -> None:
        """Return what is in unacked hashes that no lease has named for LEASE_SECONDS, and take
        empty ones off the list of hashes.

        Such a hash is left by a worker that was forgotten and died before it registered again.
        """
        if not self.broker.is_redis:
            return
        owned = {lease.unacked for lease in leases}
        now = time.monotonic()
        seen = {name: now for name in self.broker.unacked_names() if name not in owned}
        self._ownerless = {name: self._ownerless.get(name, at) for name, at in seen.items()}
        for name, at in self._ownerless.items():
            if now - at < self.config.lease_seconds:
                continue
            unacked = self.broker.unacked(name)
            entries = unacked.heads(self.config.sweep_batch)
            if entries:
                self.returns.give_back(unacked, entries, report)
            unacked.strike_off(self.config.namespace)


def _not_counted(lease: WorkerLease) -> str:
    """Return why a worker's death does not count as a loss of a task that it ran."""
    if lease.verdict.is_opening:
        return "it was opening a message that came back"
    if lease.verdict.may_be_opening:
        return "it was opening a message that came back, or died of what it ran"
    if lease.verdict.word == "only":
        return "it held others that were not opened"
    charged = lease.verdict.charged
    return f"counted for {charged}" if charged else "it ran several"
