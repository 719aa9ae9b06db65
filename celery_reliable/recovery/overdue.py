"""Records that are due for a look: queued too long, waiting, stuck, buried and owed."""

from __future__ import annotations

from typing import Any

from celery import Celery

from celery_reliable.app import reliable_of
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger, answers
from celery_reliable.message import Envelope
from celery_reliable.model import Cause, Due, Record, State, SweepReport
from celery_reliable.options import in_force
from celery_reliable.recovery.announcements import (
    announce,
    has_ended_elsewhere,
    store_revoked,
    stored_elsewhere,
)
from celery_reliable.recovery.broker_view import (
    RAREST_LOOK,
    BrokerView,
    Job,
    Presence,
    logged_failures,
)
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.named_tasks import Sending
from celery_reliable.recovery.returns import MOST_BYTES

__all__ = [
    "Overdue",
]


def _left_ms(task: Any, record: Record, now_ms: int, begun: answers.Begun) -> int:
    """Return how many ms of its time to run a running attempt of *task* has left.

    A step of the ledger's clock while it ran, of which the pass was told as it has *begun*, is
    taken off.  0 if it began in the future.
    """
    ran_ms = now_ms - record.claimed_ms
    seen_ms, by_ms = begun.stepped_ms, begun.stepped_by_ms
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
#: Each time a task is sent again doubles the time until the next look, this often at the most.
_DOUBLINGS = 6
#: The most batches that one pass looks ahead at.
_MOST_BATCHES = 4


class Overdue(Job):
    """Looks at the records that are due; and at queued ones before they are, when their messages
    may be lost.

    A worker that dies may have recorded a message and not sent it.  A server of queues may come
    back empty.
    """

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
        self._sending = sending
        #: Whether another app has workers in the namespace.
        self._is_shared = False
        #: The request to look ahead that is being met: since when messages may have been lost, and
        #: its number; the due times that are still to be looked at (the first and the last of each
        #: range, in ms); and what was seen.
        self._asked: tuple[int, int | None] | None = None
        self._ranges: list[tuple[int, int]] = []
        self._seen: set[str] = set()

    def look(
        self,
        begun: answers.Begun,
        alive: list[WorkerLease],
        dead: list[WorkerLease],
        report: SweepReport,
    ) -> bool:
        """Look at one batch of due records, and ahead if the pass that has *begun* is asked to.

        What the *dead* held is being returned.  True when all that was asked for was looked at.
        """
        own = reliable_of(self.app).project
        self._is_shared = any(one.project not in (own, ("", "")) for one in alive)
        # What a dead worker ran may be due by now.
        if begun.has_due or dead:
            self._look_at_due(begun, Presence(self, alive=alive, dead=dead), report)
        # Other brokers keep what was delivered until it is acknowledged.
        if begun.ahead_ms is None or not self.broker.is_redis:
            return True
        asked = begun.ahead_ms, begun.ahead_count
        # What a dead worker holds will be returned, so it is not lost.
        return self._look_ahead(asked, Presence(self, alive=[*alive, *dead], dead=[]), report)

    def _look_ahead(
        self, asked: tuple[int, int | None], presence: Presence, report: SweepReport
    ) -> bool:
        """Send queued tasks again whose message is nowhere; False if the next pass has to go on.

        A task is due a known time after it was sent.  So due times tell which tasks were sent since
        messages may have been lost: they come first, then those that have waited for longer.
        """
        now_ms, n_resent = self.ledger.workers.time_ms(), report.resent
        if self._asked != asked:
            self._asked, self._seen = asked, set()
            self._ranges = self._spans(asked[0], now_ms)
        left = _MOST_BATCHES * self.config.sweep_batch
        while self._ranges and left > 0:
            first_ms, last_ms = self._ranges[0]
            batch = min(left, self.config.sweep_batch)
            dues = self.ledger.due_between(first_ms, last_ms, limit=batch)
            left -= len(dues)
            new = [due for due in dues if due.task_id not in self._seen]
            self._seen |= {due.task_id for due in new}
            self._send_missing(
                [d for d in new if not presence.is_held(d.task_id)], presence, report
            )
            if len(dues) < batch:
                self._ranges.pop(0)
            else:
                # More than a batch may be due in one ms.  Those few are seen when they are due.
                next_ms = int(dues[-1].due_ms)
                self._ranges[0] = (next_ms if next_ms > first_ms else first_ms + 1, last_ms)
        if not self._ranges:
            self._asked = None
            return True
        # If none of so many is missing, the rest is a backlog.  What is lost of that is found when
        # it is due.
        if report.resent == n_resent:
            return True
        report.is_full = True
        return False

    def _spans(self, since_ms: int, now_ms: int) -> list[tuple[int, int]]:
        queued_ms = self.config.queued_ms
        spans = []
        for doubled in range(_DOUBLINGS + 1):
            after_ms = queued_ms * 2**doubled
            # What is due by now is looked at anyway.
            first_ms = max(since_ms + after_ms, now_ms)
            if first_ms <= now_ms + after_ms:
                spans.append((first_ms, now_ms + after_ms))
        return [*spans, (now_ms, now_ms + RAREST_LOOK * queued_ms)]

    def _send_missing(self, dues: list[Due], presence: Presence, report: SweepReport) -> None:
        now_ms = self.ledger.workers.time_ms()
        found = self.ledger.find_in_groups([d.task_id for d in dues], most_bytes=MOST_BYTES)
        for due, one in zip(dues, found, strict=True):
            # It is looked at again when it is due, and counted then.
            with logged_failures(SweepReport(), "not_looked_at_ahead id=%s error=%s", due.task_id):
                record = one.record
                if record is None or record.state is not State.QUEUED:
                    continue
                # A message of it should exist.
                if not (record.is_unsent or record.is_revoked):
                    self._send_if_missing(due, record, now_ms, presence, report)

    def _look_at_due(self, begun: answers.Begun, presence: Presence, report: SweepReport) -> None:
        now_ms, dues = self.ledger.due(self.config.sweep_batch)
        if not dues:
            return
        later = []
        report.looked_at = len(dues)
        report.oldest_overdue_seconds = round((now_ms - float(dues[0].due_ms)) / 1000, 3)
        report.is_full = report.is_full or len(dues) >= self.config.sweep_batch
        found = self.ledger.find_in_groups([due.task_id for due in dues], most_bytes=MOST_BYTES)
        for due, one in zip(dues, found, strict=True):
            # A record that fails is looked at later.  Otherwise it would hold up the others, as
            # the oldest come first.
            again_ms: int | None = self.config.queued_ms
            with logged_failures(report, "not_handled id=%s error=%s", due.task_id):
                again_ms = self._look_at(begun, due, one.record, now_ms, presence, report)
            if again_ms is not None:
                later.append((due, again_ms))
        self.ledger.postpone_all(later)

    def _look_at(
        self,
        begun: answers.Begun,
        due: Due,
        record: Record | None,
        now_ms: int,
        presence: Presence,
        report: SweepReport,
    ) -> int | None:
        """Return after how many ms to look again; None if nothing has to be noted of that."""
        if record is None:
            return 0
        if self._is_shared and record.name and record.name not in self.app.tasks:
            # It is probably a task of the other app, whose workers look after it.
            return self.config.sweep_ms
        if record.state is State.RUNNING:
            left_ms = _left_ms(self.app.tasks.get(record.name), record, now_ms, begun)
            if left_ms > 0:
                return left_ms
            # It is stuck, and is taken from its worker.
            self.losses.lose(
                record.claim, Cause.STUCK, report, has_message=False, due_ms=due.due_ms
            )
        elif record.state is State.DEAD:
            announce(self.app, self.ledger, due.task_id, due.due_ms)
        elif record.is_called_off:
            # Its record is removed when nothing of it runs any more.
            if isinstance(self.ledger.let_go(record.task_id), answers.Gone):
                return self.config.lease_ms
        elif record.is_replaced:
            return self._look_at_canvas(due, record, now_ms)
        else:
            return self._look_at_unclaimed(due, record, now_ms, presence, report)
        return None

    def _look_at_unclaimed(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> int | None:
        if record.is_revoked:
            store_revoked(self.app, record)
            self.ledger.cancel(record.task_id, epoch=record.epoch)
        elif record.is_unsent or record.in_line_of:
            self._sending.send(due, record, report)
        elif presence.is_held(due.task_id):
            # Also one that waits: on a server that lost records, it may have been sent and run.
            # Mostly that is the message of before, which its worker is about to remove.
            is_queued = record.state is State.QUEUED
            return self.config.queued_ms if is_queued else self.config.sweep_ms
        elif record.state is State.QUEUED:
            return self._send_if_missing(due, record, now_ms, presence, report)
        else:
            self._sending.send(due, record, report)
        return None

    def _look_at_canvas(self, due: Due, record: Record, now_ms: int) -> int | None:
        """End a replaced task whose canvas ended by a plain task, or failed on the way; else return
        after how many ms to look again.
        """
        is_over = now_ms - record.since_ms > _LONGEST_WAITING_MS and not self._lives(record)
        if not is_over and not has_ended_elsewhere(record, stored_elsewhere(self.app, record)):
            return self.config.queued_ms
        self.ledger.cancel(
            due.task_id,
            epoch=record.epoch,
            outcome="",
            by="its canvas has ended, or was given up",
        )
        return None

    def _lives(self, record: Record) -> bool:
        """Whether a member of its canvas is known to live."""
        members = (self.ledger.find(task_id) for task_id in record.members)
        return any(one is not None and one.state is not State.DEAD for one in members)

    def _send_if_missing(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> int | None:
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
        return None
