"""Records that are due for a look: parked, queued too long, stuck, waiting, buried and owed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery import Celery

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import AS_IT_IS, Ledger, answers
from celery_reliable.message import Envelope, is_named, seconds_until
from celery_reliable.model import Cause, Due, Record, State, SweepReport
from celery_reliable.options import in_force
from celery_reliable.publishing import send_all_stored, send_stored, step_up
from celery_reliable.recovery.announcements import announce
from celery_reliable.recovery.broker_view import BrokerView
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.lost_messages import MOST_BYTES, Asked, LostMessages
from celery_reliable.recovery.message_presence import RAREST_LOOK, Presence
from celery_reliable.recovery.named_tasks import NamedTasks
from celery_reliable.recovery.stored_results import (
    has_ended_elsewhere,
    store_revoked,
    stored_elsewhere,
)

__all__ = ["Overdue"]

#: How long a replaced task's id waits for a canvas of which no member is known to live.
_LONGEST_WAITING_MS = 24 * 60 * 60 * 1000
_UNCLAIMED = (State.QUEUED, State.PARKED)


@dataclass(frozen=True)
class Step:
    """The last step forward of the server's clock, in ms: when it was seen, and how far it went."""

    seen_ms: int
    by_ms: int

    @classmethod
    def of(cls, begun: answers.Begun) -> Step | None:
        """Return the step that the beginning of a pass was told of; None if there was none."""
        if begun.stepped_ms is None or begun.stepped_by_ms is None:
            return None
        return cls(begun.stepped_ms, begun.stepped_by_ms)


class Overdue:
    """Looks at the records that are due."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView, losses: Losses) -> None:
        self.app = app
        self.config = reliable_of(app).config
        self.ledger = ledger
        self.broker = broker
        self.losses = losses
        #: The last step of the server's clock, if one is known.
        self.step: Step | None = None
        self.named = NamedTasks(app, ledger, broker)
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
        batch = self.ledger.due(self.config.sweep_batch)
        now_ms, dues = batch.now_ms, batch.dues
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
                events.not_handled(task_id=due.task_id, error=exc)
                report.failed += 1
                self._later.append((due, self.config.queued_ms))
        self.ledger.postpone_all(self._later)

    def _look_at(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> None:
        if self._is_shared and record.name and record.name not in self.app.tasks:
            # It is probably a task of the other app, whose workers look after it.
            self._later.append((due, self.config.sweep_ms))
        elif record.state is State.RUNNING and (left_ms := self._left_ms(record, now_ms)) > 0:
            self._later.append((due, left_ms))
        elif record.state is State.RUNNING:
            self.losses.lose(
                record.claim, Cause.STUCK, report, has_message=False, due_ms=due.due_ms
            )
        elif record.state is State.DEAD:
            announce(self.app, self.ledger, due.task_id, due.due_ms)
        elif record.is_called_off:
            self._let_go(due, record)
        elif record.state is State.WAITING:
            self._look_at_canvas(due, record, now_ms)
        else:
            self._look_at_unclaimed(due, record, now_ms, presence, report)

    def _look_at_unclaimed(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> None:
        if record.is_revoked:
            store_revoked(self.app, record)
            self.ledger.cancel(record.task_id, epoch=record.epoch)
        elif record.in_line_of:
            self._look_at_line(due, record, report)
        elif record.is_unsent:
            self.send(due, record, report)
        elif record.state in _UNCLAIMED and presence.is_held(due.task_id):
            # Parked too: on a server that lost records, it may have been sent and run.
            self._later.append((due, self.config.queued_ms))
        elif record.state is State.QUEUED:
            wait_ms = self._send_if_missing(due, record, now_ms, presence, report)
            if wait_ms:
                self._later.append((due, wait_ms))
        else:
            self.send(due, record, report)

    def _look_at_line(self, due: Due, record: Record, report: SweepReport) -> None:
        """Let a task that stands in line go on if it is its turn, or if it has expired: then a
        worker says so.
        """
        answer = step_up(self.app, self.ledger, record)
        if isinstance(answer, answers.Send):
            report.resent += 1
        elif isinstance(answer, answers.Full):
            expires = Envelope.from_text(record.message).headers.get("expires")
            if expires and not seconds_until(expires):
                self.send(due, record, report)
            else:
                # Who becomes the first of the line is looked at soon.
                times = RAREST_LOOK if answer.before else 1
                self._later.append((due, self.config.queued_ms * times))

    def _left_ms(self, record: Record, now_ms: int) -> int:
        """Return how many ms of its time to run an attempt has left.

        A step of the server's clock while it ran is taken off.  0 if it began in the future.
        """
        seconds = _time_to_run(self.app.tasks.get(record.name), record)
        ran_ms = now_ms - record.claimed_ms
        step = self.step
        if step is not None and record.claimed_ms + step.by_ms <= step.seen_ms:
            ran_ms -= step.by_ms
        return int(seconds * 1000) - ran_ms if ran_ms >= 0 else 0

    def _look_at_canvas(self, due: Due, record: Record, now_ms: int) -> None:
        """End a replaced task whose canvas ended by a plain task, or failed on the way."""
        since_ms = record.waiting_ms or record.published_ms
        is_over = now_ms - since_ms > _LONGEST_WAITING_MS and not self._lives(record)
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
        if record.stopping_on and not self.ledger.is_outlived(due.task_id, record.stopping_on):
            self._later.append((due, self.config.lease_ms))
        else:
            self.ledger.let_go(record.task_id)

    def _send_if_missing(
        self, due: Due, record: Record, now_ms: int, presence: Presence, report: SweepReport
    ) -> int:
        """Send a queued task again, unless its message can still be in its queue: then return after
        how many ms to look again.
        """
        if not self.named.is_astray(record):
            wait_ms = presence.wait_in_queue_ms(record, now_ms)
            if wait_ms:
                return wait_ms
        stored = stored_elsewhere(self.app, record)
        if not has_ended_elsewhere(record, stored):
            self.send(due, record, report, stored)
        else:
            self.ledger.cancel(
                record.task_id,
                epoch=record.epoch,
                outcome="",
                by="its result was stored already",
            )
        return 0

    def send(self, due: Due, record: Record, report: SweepReport, stored: str = "") -> None:
        """Send a task that is due, unless somebody else has, or it has to wait yet."""
        message = AS_IT_IS
        if is_named(record.message):
            sent = self.named.message_for(record)
            if sent is None:
                self.named.park(due, record)
                return
            message = sent
        answer = self.ledger.resend(
            due, due_in_ms=self.config.queued_ms, stored=stored, message=message
        )
        if isinstance(answer, answers.Held):
            # The worker makes it due once it has stopped the attempt, or is dead within a lease.
            self.ledger.postpone(due, due_in_ms=self.config.lease_ms)
        if not isinstance(answer, answers.Send):
            return
        if message.text:
            self.named.sent(record, message.text)
        report.resent += send_stored(
            self.app,
            self.ledger,
            due.task_id,
            answer,
            again_in_ms=self.config.sweep_ms,
            # What was lost goes first once; a task that is lost again waits behind the others.
            is_first=record.is_limited or (record.is_unsent and record.losses == 1),
        )

    def send_limited(self, found: Sequence[tuple[Due, Record]]) -> None:
        """Send limited tasks whose moment has come, as `send` does, in a few round trips for all.

        They go in front of their queues: they have waited for longer than what stands there, and
        behind it they would be late, and then too many at once.
        """
        plain = [one for one in found if one[1].is_limited and not is_named(one[1].message)]
        told = self.ledger.resend_all([due for due, _ in plain], due_in_ms=self.config.queued_ms)
        send_all_stored(
            self.app,
            self.ledger,
            [
                (due.task_id, answer)
                for (due, _), answer in zip(plain, told, strict=True)
                if isinstance(answer, answers.Send)
            ],
            again_in_ms=self.config.sweep_ms,
            is_first=True,
        )
        held = [
            one for one, answer in zip(plain, told, strict=True) if isinstance(answer, answers.Held)
        ]
        for due, record in [*held, *(one for one in found if one not in plain)]:
            self.send(due, record, SweepReport())


def _time_to_run(task: Any, record: Record) -> float:
    """Return the seconds that an attempt may run without a touch; 0 for no limit."""
    try:
        headers = Envelope.from_text(record.message).headers
    except ValueError:
        headers = {}
    return float(in_force(task, "time_to_run_seconds", headers) or 0)
