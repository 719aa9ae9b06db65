"""Which workers count as dead, and what becomes of what they ran and held."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

from celery import Celery

from celery_reliable import events
from celery_reliable.broker import Entry
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger, answers
from celery_reliable.model import Cause, State, SweepReport
from celery_reliable.recovery.broker_view import BrokerView, Job, logged_failures
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.returns import MOST_BYTES, Returns, is_over, stamp_of

__all__ = ["DeadWorkers"]


def _how_it_died(lease: WorkerLease) -> str:
    """Return what is known of a worker's death, as text for people."""
    return f"{lease.cause}, pid {lease.facts.get('pid', '?')}"


class DeadWorkers(Job):
    """Finds out which workers are dead, and recovers what they held, in bounded steps that may be
    repeated.
    """

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView, losses: Losses) -> None:
        super().__init__(app, ledger, broker)
        self.losses = losses
        self.returns = Returns(app, ledger, broker)
        #: Unacked hashes that no lease names, and when that was first seen (monotonic seconds).
        self._ownerless: dict[str, float] = {}
        self._looked_at = -math.inf

    def declare(
        self,
        begun: answers.Begun,
        leases: list[WorkerLease],
        report: SweepReport,
        *,
        expected_ms: Callable[[], int | None],
    ) -> list[WorkerLease]:
        """Declare dead whose lease has run out, or whose connection the server has seen end: that
        is the witness of a death, which is known before the lease ends.  Return all dead workers.

        *expected_ms* returns what the ledger's time should be by now: if it is another, its clock
        was set.  The ledger decides: ``declare``.
        """
        config, workers = self.config, self.ledger.workers
        alive = [lease for lease in leases if not lease.is_dead]
        connected = (
            workers.connected(lease.client_id for lease in alive) if config.witness_ms else None
        )
        for lease in alive:
            causes = []
            # A lost connection needs no grace after an outage, so it is tried before the lease.
            if connected is not None and lease.has_witness and lease.client_id not in connected:
                causes.append("connection")
            if lease.until_ms <= begun.now_ms:
                causes.append("lapsed")
            for cause in causes:
                answer = workers.declare(
                    lease,
                    cause,
                    witness_ms=config.witness_ms,
                    expected_ms=expected_ms(),
                )
                if isinstance(answer, answers.Declared):
                    report.declared += 1
                    events.worker_declared_dead(app=self.app, worker=lease.worker, cause=cause)
                    break
        return [
            lease for lease in (workers.leases() if report.declared else leases) if lease.is_dead
        ]

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
                    detail=_how_it_died(lease) + ("" if is_charged else f"; {_not_counted(lease)}"),
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
        ran: plain tasks', or of another broker's.
        """
        others = [one for one in entries if one.task_id != task_id][: self.config.sweep_batch]
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
        now = time.monotonic()
        # It is not urgent, and an idle fleet is to be asked little.
        if not self.broker.is_redis or now - self._looked_at < self.config.lease_seconds / 4:
            return
        self._looked_at, owned = now, {lease.unacked for lease in leases}
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
    if lease.verdict.word == "only":
        return "it held others that were not opened"
    charged = lease.verdict.charged
    return f"counted for {charged}" if charged else "it ran several"
