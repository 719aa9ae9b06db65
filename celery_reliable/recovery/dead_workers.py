"""What dead workers held: their claims are lost, and their messages go back to the queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from celery import Celery

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.broker import Entry, Unacked
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import Found, Ledger
from celery_reliable.message import Envelope, Stamp
from celery_reliable.model import Cause, Claim, Reason, Record, State, SweepReport, WorkerLease
from celery_reliable.options import is_reliable
from celery_reliable.recovery.broker_view import BrokerView
from celery_reliable.recovery.losses import Losses, how_it_died
from celery_reliable.recovery.lost_messages import MOST_BYTES

__all__ = ["DeadWorkers", "is_over"]


class DeadWorkers:
    """Recovers what dead workers held, in bounded steps that may be repeated."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView, losses: Losses) -> None:
        self.app = app
        self.config = reliable_of(app).config
        self.ledger = ledger
        self.broker = broker
        self.losses = losses
        #: Unacked hashes that no lease names, and when that was first seen (monotonic).
        self._ownerless: dict[str, float] = {}

    def recover(self, lease: WorkerLease, report: SweepReport) -> None:
        """Lose what a dead worker ran, return what it was delivered, and forget it when nothing is
        left.
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
            # It may have died of what it was opening.
            lease = replace(lease, verdict=lease.verdict.sparing_all())
        last: set[str] = set()
        for claim, _ in claims[:batch]:
            losses = self._lose(lease, claim, claim.task_id in in_unacked, report)
            # Once may be the worker's fault; what is lost again must not hold up all others.
            if losses > 1:
                last.add(claim.task_id)
        done = 0
        if unacked is not None and entries:
            # Ours first: plain ones may have to stay for long.
            entries.sort(key=lambda entry: not _stamp(entry).epoch)
            done = self._give_back(unacked, lease, entries[:batch], last, report)
        report.is_full = report.is_full or len(claims) > batch or (0 < done < len(entries))
        # A worker that was heard of again keeps what may not be moved: it has the same unacked
        # hash.
        if len(claims) <= batch and (done == len(entries) or lease.is_thawed):
            left = len(unacked) if unacked is not None and not lease.is_thawed else 0
            # Its unacked hash stays on the list: it may live after all, and file something before
            # it hears that it is forgotten.
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
            events.not_lost(task_id=claim.task_id, worker=lease.worker, error=exc)
            report.failed += 1
            return 0

    def _has_unopened(self, entries: list[Entry], task_id: str) -> bool:
        """Whether a worker held messages, beside that of the one task that it ran, that nobody had
        begun, and of which nobody would have noted that they were opened.
        """
        others = [one for one in entries if one.task_id != task_id and not one.returns]
        others = others[: self.config.sweep_batch]
        for entry, found in zip(others, self._records_of(others), strict=True):
            if not found.is_readable:
                continue
            record = found.record
            is_begun = record is not None and record.state is not State.QUEUED
            if not (is_begun or is_over(self.ledger, entry, record)):
                return True
        return False

    def _records_of(self, entries: list[Entry]) -> Iterator[Found]:
        """Yield what is found of the tasks, a few megabytes at a time."""
        task_ids = [entry.task_id for entry in entries]
        return self.ledger.find_in_groups(task_ids, most_bytes=MOST_BYTES)

    def recover_ownerless(self, leases: list[WorkerLease], report: SweepReport) -> None:
        """Return what is in unacked hashes that no lease has named for as long as a lease lasts: of
        a worker that was forgotten, and died before it registered again.  Strike off those that are
        empty.
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
                self._give_back(unacked, None, entries, set(), report)
            unacked.strike_off(self.config.namespace)

    def _give_back(
        self,
        unacked: Unacked,
        lease: WorkerLease | None,
        entries: list[Entry],
        last: set[str],
        report: SweepReport,
    ) -> int:
        """Return the original messages to their queues, in front of what waits there; those of
        *last* go behind it.  Returns how many of *entries* are dealt with.
        """
        done = 0
        # The newest first, as each that was waiting goes in front of the others.
        newest = sorted(entries, key=lambda entry: entry.filed_ms, reverse=True)
        for entry, found in zip(newest, self._records_of(newest), strict=True):
            try:
                done += self._give_back_one(unacked, lease, entry, found.record, last, report)
            except (LedgerRefused, LedgerUnavailable):
                raise
            except Exception as exc:
                # One message that cannot be moved must not hold up the others.
                events.not_given_back(unacked=unacked.name, tag=entry.tag, error=exc)
                report.failed += 1
        return done

    def _give_back_one(
        self,
        unacked: Unacked,
        lease: WorkerLease | None,
        entry: Entry,
        record: Record | None,
        last: set[str],
        report: SweepReport,
    ) -> bool:
        if is_over(self.ledger, entry, record):
            unacked.discard(entry.tag)
            report.dropped += 1
            return True
        is_named = lease is not None and lease.verdict.may_be_opening and entry.tag == lease.opening
        # Whoever opens it from now on says so first.
        is_last, returns = is_named or entry.task_id in last, max(entry.returns, 1)
        if record is None and entry.payload is not None:
            is_plain = self._is_plain(entry, record)
            if is_plain and not self._may_move(lease, entry):
                return False
            # Nobody claims a plain task: each return may be the loss of an attempt, unless it is
            # known what its worker died of.
            may_have_run = is_plain and self._may_have_run(entry)
            if is_named or (may_have_run and not (lease is not None and lease.verdict.is_opening)):
                # The first return of what cannot have run is nobody's loss.
                if entry.returns >= self.config.max_losses + (not may_have_run):
                    self._bury(unacked, entry, "opened" if is_named else "held")
                    report.buried += 1
                    return True
                is_last, returns = is_last or entry.returns > 0, entry.returns + 1
        report.returned += unacked.give_back(
            self.broker.channel, entry.tag, is_last=is_last, returns=returns
        )
        return True

    def _is_plain(self, entry: Entry, record: Record | None) -> bool:
        """Whether a readable message is of a task of another base."""
        if entry.payload is None or record is not None or _stamp(entry).epoch:
            return False
        return not is_reliable(self.app.tasks.get(entry.task_name))

    def _may_move(self, lease: WorkerLease | None, entry: Entry) -> bool:
        """Whether a plain task's message may go back: it has no claim that would refuse a second
        run.
        """
        if lease is not None:
            if lease.cause == "connection":
                return True
            if lease.looks_again and not self._may_have_run(entry):
                return True
        options = self.app.conf.broker_transport_options or {}
        timeout_ms = float(options.get("visibility_timeout", 3600)) * 1000
        return time.time() * 1000 - entry.filed_ms > timeout_ms

    def _may_have_run(self, entry: Entry) -> bool:
        """Whether a plain task in an unacked hash may have been begun: others are acknowledged
        before.
        """
        task = self.app.tasks.get(entry.task_name)
        return bool(getattr(task, "acks_late", True))

    def _bury(self, unacked: Unacked, entry: Entry, what: str) -> None:
        whole = unacked.entry(entry.tag)
        if whole is None or whole.payload is None:
            # Somebody else has dealt with it.
            return
        task_id, losses = entry.task_id or f"lost-{entry.tag}", entry.returns + 1
        why = f"its worker died {losses} times while it {what} the message"
        self.ledger.bury_message(
            task_id,
            Reason.LOST,
            exception=why,
            traceback="",
            message=Envelope.from_payload(whole.payload, entry.queue).to_text(),
            name=entry.task_name,
            epoch=_stamp(entry).epoch,
        )
        unacked.discard(entry.tag)
        events.task_buried(
            app=self.app,
            name=entry.task_name,
            task_id=task_id,
            reason=Reason.LOST,
            losses=losses,
            exception=why,
        )


def is_over(ledger: Ledger, entry: Entry, record: Record | None) -> bool:
    """Whether a message that may go back is to be dropped: its task has ended, or goes on with
    another message.  *record* is what was found of the task.

    Those without the package would run it: their workers ask nobody.
    """
    stamp = _stamp(entry)
    if record is None:
        return bool(stamp.generation) and ledger.has_ended(
            entry.task_id, stamp.generation, stamp.epoch
        )
    return record.state is State.DEAD or bool(stamp.epoch and stamp.epoch != record.epoch)


def _not_counted(lease: WorkerLease) -> str:
    if lease.verdict.is_opening:
        return "it was opening a message that came back"
    if lease.verdict.may_be_opening:
        return "it was opening a message that came back, or died of what it ran"
    if lease.verdict.word == "only":
        return "it held others that were not opened"
    charged = lease.verdict.charged
    return f"counted for {charged}" if charged else "it ran several"


def _stamp(entry: Entry) -> Stamp:
    return Stamp.of((entry.payload or {}).get("headers"))
