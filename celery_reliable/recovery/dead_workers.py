"""What dead workers held: their claims are lost, and their messages go back to the queues."""

from __future__ import annotations

import time
from dataclasses import replace

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.broker import Entry
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger
from celery_reliable.log import logger
from celery_reliable.model import Cause, Claim, State, SweepReport
from celery_reliable.recovery.broker_view import BrokerView
from celery_reliable.recovery.losses import Losses, how_it_died
from celery_reliable.recovery.lost_messages import MOST_BYTES
from celery_reliable.recovery.returns import Returns, is_over, stamp_of

__all__ = ["DeadWorkers"]


class DeadWorkers:
    """Recovers what dead workers held, in bounded steps that may be repeated."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView, losses: Losses) -> None:
        self.config = reliable_of(app).config
        self.ledger = ledger
        self.broker = broker
        self.losses = losses
        self.returns = Returns(app, ledger, lambda: broker.channel)
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
            lease = replace(lease, verdict=lease.verdict.sparing_all())
        last: set[str] = set()
        for claim, _ in claims[:batch]:
            losses = self._lose(lease, claim, claim.task_id in in_unacked, report)
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

    def _lose(
        self, lease: WorkerLease, claim: Claim, has_message: bool, report: SweepReport
    ) -> int:
        is_charged = lease.verdict.charges(claim.task_id)
        try:
            return self.losses.lose(
                claim,
                Cause.WORKER_LOST,
                report,
                has_message=has_message,
                verdict=lease.verdict,
                detail=how_it_died(lease) + ("" if is_charged else f"; {_not_counted(lease)}"),
            )
        except (LedgerRefused, LedgerUnavailable):
            raise
        except Exception as exc:
            # One record that cannot be read must not hold up the others.
            logger.error(
                "not_lost id=%s worker=%s error=%s", claim.task_id, lease.worker, exc, exc_info=exc
            )
            report.failed += 1
            return 0

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
