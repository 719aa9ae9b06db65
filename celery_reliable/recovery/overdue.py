"""Records that are due for a look: queued too long, waiting, stuck, buried and owed."""

from __future__ import annotations

from typing import Any

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import Envelope
from celery_reliable.model import Cause, Due, Record, State, SweepReport
from celery_reliable.options import in_force
from celery_reliable.recovery.announcements import (
    announce,
    has_ended_elsewhere,
    store_revoked,
    stored_elsewhere,
)
from celery_reliable.recovery.broker_view import BrokerView, Job, Presence
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.lost_messages import MOST_BYTES, Asked, LostMessages
from celery_reliable.recovery.named_tasks import Sending

__all__ = [
    "Overdue",
]


def _left_ms(task: Any, record: Record, now_ms: int, begun: answers.Begun | None) -> int:
    """Return how many ms of its time to run a running attempt of *task* has left.

    A step of the ledger's clock while it ran, of which the pass was told as it has *begun*, is
    taken off.  0 if it began in the future.
    """
    ran_ms = now_ms - record.claimed_ms
    seen_ms, by_ms = (begun.stepped_ms, begun.stepped_by_ms) if begun is not None else (None, None)
    if seen_ms is not None and by_ms is not None and record.claimed_ms + by_ms <= seen_ms:
        ran_ms -= by_ms
    try:
        headers = Envelope.from_text(record.message).headers
    except ValueError:
        headers = {}
    # 0: no limit.
    limit_seconds = float(in_force(task, "time_to_run_seconds", headers) or 0)
    return int(limit_seconds * 1000) - ran_ms if ran_ms >= 0 else 0


#: How long a replaced task's id waits for a canvas of which no member is known to live.
_LONGEST_WAITING_MS = 24 * 60 * 60 * 1000


class Overdue(Job):
    """Looks at the records that are due."""

    def __init__(
        self,
        app: Celery,
        ledger: Ledger,
        broker: BrokerView,
        losses: Losses,
        sending: Sending,
    ) -> None:
        super().__init__(app, ledger, broker)
        self.losses = losses
        #: What the pass was told as it began.
        self.begun: answers.Begun | None = None
        self._sending = sending
        self.ahead = LostMessages(ledger, self.config, self._send_if_missing)
        #: Whether another app has workers in the namespace.
        self._is_shared = False
        #: Records that can wait, each with the ms after which to look again.
        self._later: list[tuple[Due, int]] = []

    def look(
        self,
        alive: list[WorkerLease],
        dead: list[WorkerLease],
        report: SweepReport,
        asked: Asked | None = None,
    ) -> bool:
        """Look at one batch of due records, and ahead at what is *asked* for.

        What the *dead* held is being returned.  True when all that was asked for was looked at.
        """
        own = reliable_of(self.app).project
        self._is_shared = any(one.project not in (own, ("", "")) for one in alive)
        self._look_at_due(self._presence(alive, dead), report)
        # Other brokers keep what was delivered until it is acknowledged.
        if not self.broker.is_redis:
            return True
        # What a dead worker holds will be returned, so it is not lost.
        return asked is None or self.ahead.look(asked, self._presence([*alive, *dead], []), report)

    def _presence(self, held_by: list[WorkerLease], returned_of: list[WorkerLease]) -> Presence:
        return Presence(
            self.ledger, self.broker, self.config.queued_ms, alive=held_by, dead=returned_of
        )

    def _look_at_due(self, presence: Presence, report: SweepReport) -> None:
        now_ms, dues = self.ledger.due(self.config.sweep_batch)
        if not dues:
            return
        self._later = []
        report.looked_at = len(dues)
        report.oldest_overdue_seconds = round((now_ms - float(dues[0].due_ms)) / 1000, 3)
        report.is_full = report.is_full or len(dues) >= self.config.sweep_batch
        found = self.ledger.find_in_groups([due.task_id for due in dues], most_bytes=MOST_BYTES)
        for due, one in zip(dues, found, strict=True):
            try:
                record = one.record
                if record is None:
                    self._later.append((due, 0))
                else:
                    self._look_at(due, record, now_ms, presence, report)
            except (LedgerUnavailable, LedgerRefused):
                raise
            except Exception as exc:
                # The oldest come first: one that cannot be handled must not hold up the others.
                logger.error("not_handled id=%s error=%s", due.task_id, exc, exc_info=exc)
                report.failed += 1
                self._later.append((due, self.config.queued_ms))
        self.ledger.postpone_all(self._later)

    def _look_at(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> None:
        if self._is_shared and record.name and record.name not in self.app.tasks:
            # It is probably a task of the other app, whose workers look after it.
            self._later.append((due, self.config.sweep_ms))
        elif record.state is State.RUNNING:
            self._look_at_running(due, record, now_ms, report)
        elif record.state is State.DEAD:
            announce(self.app, self.ledger, due.task_id, due.due_ms)
        elif record.is_called_off:
            self._let_go(due, record)
        elif record.is_replaced:
            self._look_at_canvas(due, record, now_ms)
        else:
            self._look_at_unclaimed(due, record, now_ms, presence, report)

    def _look_at_running(self, due: Due, record: Record, now_ms: int, report: SweepReport) -> None:
        """Take an attempt that is stuck from its worker."""
        time_left_ms = _left_ms(self.app.tasks.get(record.name), record, now_ms, self.begun)
        if time_left_ms > 0:
            self._later.append((due, time_left_ms))
        else:
            self.losses.lose(
                record.claim, Cause.STUCK, report, has_message=False, due_ms=due.due_ms
            )

    def _look_at_unclaimed(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> None:
        if record.is_revoked:
            store_revoked(self.app, record)
            self.ledger.cancel(record.task_id, epoch=record.epoch)
        elif record.is_unsent or record.in_line_of:
            self._sending.send(due, record, report)
        elif presence.is_held(due.task_id):
            # Also one that waits: on a server that lost records, it may have been sent and run.
            # Mostly that is the message of before, which its worker is about to remove.
            is_queued = record.state is State.QUEUED
            self._later.append((due, self.config.queued_ms if is_queued else self.config.sweep_ms))
        elif record.state is State.QUEUED:
            wait_ms = self._send_if_missing(due, record, now_ms, presence, report)
            if wait_ms:
                self._later.append((due, wait_ms))
        else:
            self._sending.send(due, record, report)

    def _look_at_canvas(self, due: Due, record: Record, now_ms: int) -> None:
        """End a replaced task whose canvas ended by a plain task, or failed on the way."""
        is_over = now_ms - record.since_ms > _LONGEST_WAITING_MS and not self._lives(record)
        if is_over or has_ended_elsewhere(record, stored_elsewhere(self.app, record)):
            self.ledger.cancel(
                due.task_id,
                epoch=record.epoch,
                outcome="",
                by="its canvas has ended, or was given up",
            )
        else:
            self._later.append((due, self.config.queued_ms))

    def _lives(self, record: Record) -> bool:
        """Whether a member of its canvas is known to live."""
        members = (self.ledger.find(task_id) for task_id in record.members)
        return any(one is not None and one.state is not State.DEAD for one in members)

    def _let_go(self, due: Due, record: Record) -> None:
        """Remove what was called off, when nothing of it runs any more."""
        if isinstance(self.ledger.let_go(record.task_id), answers.Gone):
            self._later.append((due, self.config.lease_ms))

    def _send_if_missing(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> int:
        """Send a queued task again, unless its message can still be in its queue: then return after
        how many ms to look again.
        """
        if not self._sending.is_astray(record):
            wait_ms = presence.wait_in_queue_ms(record, now_ms)
            if wait_ms:
                return wait_ms
        stored = stored_elsewhere(self.app, record)
        if not has_ended_elsewhere(record, stored):
            self._sending.send(due, record, report, stored)
        else:
            self.ledger.cancel(
                record.task_id,
                epoch=record.epoch,
                outcome="",
                by="its result was stored already",
            )
        return 0
