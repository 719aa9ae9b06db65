"""Records at which somebody must look: parked, queued too long, stuck, waiting, buried and owed."""

from __future__ import annotations

import logging

from celery import Celery
from celery import states as celery_states

from celery_reliable.application import reliable_of
from celery_reliable.broker import BrokerView
from celery_reliable.envelope import Envelope
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import Ledger
from celery_reliable.losses import Losses
from celery_reliable.model import Cause, Claim, Due, Record, Reply, State, SweepReport, WorkerLease
from celery_reliable.publisher import resend

__all__ = ["Overdue"]

logger = logging.getLogger(__name__)

#: How long a replaced task's id waits for a canvas that stores no results.
_LONGEST_WAITING_MS = 24 * 60 * 60 * 1000
_UNCLAIMED = (State.QUEUED, State.PARKED)
#: What waits in a queue is looked at once in so many QUEUED_SECONDS at least.
_RAREST_LOOK = 10


class Overdue:
    """Looks at the records that are due."""

    def __init__(self, app: Celery, ledger: Ledger, broker: BrokerView, losses: Losses) -> None:
        self.app = app
        self.config = reliable_of(app).config
        self.ledger = ledger
        self.broker = broker
        self.losses = losses
        #: What this pass has seen of the queues' ends.
        self._ends: dict[tuple[str, str, str], list[tuple[set[str], float]]] = {}
        #: What it has found to wait, and after how many ms to look again.
        self._later: list[tuple[Due, int]] = []

    def look(self, alive: list[WorkerLease], dead: list[WorkerLease], report: SweepReport) -> None:
        """Look at one batch; what the *dead* held is being returned."""
        now_ms, dues = self.ledger.due(self.config.sweep_batch)
        if not dues:
            return
        self._ends, self._later = {}, []
        report.looked_at = len(dues)
        report.oldest_overdue_seconds = round((now_ms - float(dues[0].due_ms)) / 1000, 3)
        report.is_full = report.is_full or len(dues) >= self.config.sweep_batch
        records = self.ledger.find_all([due.task_id for due in dues])
        held: set[str] = set()
        if self.broker.is_redis and any(r is not None and r.state in _UNCLAIMED for r in records):
            # A server that lost records may know nothing of a worker that lives.
            strangers = {*self.broker.room_names()} - {lease.room for lease in dead}
            held = self.broker.task_ids_in(strangers | {one.room for one in alive if one.room})
        for due, record in zip(dues, records, strict=True):
            try:
                if record is None:
                    self._later.append((due, 0))
                else:
                    self._look_at(due, record, now_ms, held, report)
            except (LedgerUnavailable, LedgerRefused):
                raise
            except Exception:
                # The oldest come first: one that cannot be handled must not hold up the others.
                logger.exception("not_handled id=%s", due.task_id)
                report.failed += 1
                self._later.append((due, self.config.queued_ms))
        self.ledger.postpone_all(self._later)

    def _look_at(
        self, due: Due, record: Record, now_ms: int, held: set[str], report: SweepReport
    ) -> None:
        if record.state is State.RUNNING:
            claim = Claim(due.task_id, record.attempt, record.owner, record.token, record.losses)
            self.losses.lose(claim, Cause.STUCK, report, has_message=False, due_ms=due.due_ms)
        elif record.state is State.DEAD:
            self.losses.announce(due.task_id, due.due_ms)
        elif record.state is State.WAITING:
            # Ended by a task of another base, or by nobody: a canvas that failed on the way.
            since_ms = record.waiting_ms or record.published_ms
            is_over = now_ms - since_ms > _LONGEST_WAITING_MS
            if is_over or self.losses.stored_state(due.task_id) in celery_states.READY_STATES:
                self.ledger.cancel(due.task_id, epoch=record.epoch)
            else:
                self._later.append((due, self.config.queued_ms))
        elif record.is_unsent:
            self._send(due, report)
        elif record.state in _UNCLAIMED and due.task_id in held:
            # Parked too: on a server that lost records, it may have been sent and run.
            self._later.append((due, self.config.queued_ms))
        elif record.state is State.QUEUED and (wait_ms := self._wait_in_queue_ms(record, now_ms)):
            self._later.append((due, wait_ms))
        elif record.state is State.QUEUED and self.losses.has_ended_elsewhere(record):
            if self.ledger.cancel(due.task_id, epoch=record.epoch).reply is Reply.CANCELLED:
                self.losses.free_lock_of(record)
        else:
            self._send(due, report)

    def _wait_in_queue_ms(self, record: Record, now_ms: int) -> int:
        """Return when to look again if the message can still be in its queue: then what is popped
        next was sent before it.  Else 0.

        In doubt it is there.  A wrong 0 costs a second message, which the claim refuses.
        """
        envelope = Envelope.from_text(record.message)
        where = (envelope.exchange, envelope.routing_key, str(envelope.properties.get("priority")))
        # Looked at once a pass, however many are overdue.
        if where not in self._ends:
            self._ends[where] = self._ends_of(envelope)
        sent_ms, queued_ms = _sent_ms(record), self.config.queued_ms
        found = [
            oldest
            for ids, oldest in self._ends[where]
            if record.task_id in ids or oldest <= sent_ms
        ]
        if not any(found):
            return queued_ms if found else 0
        # The longer it has waited, the rarer: a backlog that nobody works off would be gone through
        # over and over.
        return min(max(queued_ms, (now_ms - sent_ms) // 2), _RAREST_LOOK * queued_ms)

    def _ends_of(self, envelope: Envelope) -> list[tuple[set[str], float]]:
        """Return, of each queue that a message leads to, the ids at the end that is popped next,
        and when the oldest of them was sent: never, if that cannot be told.
        """
        if not self.broker.is_redis:
            # Such a broker keeps messages itself.
            return [(set(), 0.0)] if self.broker.waiting(envelope) > 0 else []
        ends = []
        for head in self.broker.heads(envelope):
            found = self.ledger.find_all([task_id for task_id in head if task_id])
            sent = [_sent_ms(one) for one in found if one is not None]
            if head:
                ends.append((set(head), float(min(sent, default=0))))
        return ends

    def _send(self, due: Due, report: SweepReport) -> None:
        answer = self.ledger.resend(due, due_in_ms=self.config.queued_ms)
        if answer.reply is Reply.HELD:
            # It makes the task due when it has stopped the attempt, and dies within a lease.
            self.ledger.postpone(due, due_in_ms=self.config.lease_ms)
        if answer.reply is not Reply.SEND:
            return
        try:
            resend(self.app, Envelope.from_text(answer.text(0)))
        except Exception as exc:
            # The broker is away; whatever it is, this task must not wait for its next turn, nor
            # keep the others from theirs.
            logger.warning("not_sent_again id=%s error=%r", due.task_id, exc)
            self.ledger.postpone(
                Due(due.task_id, answer.text(1)), due_in_ms=self.config.sweep_ms, is_unsent=True
            )
            return
        report.resent += 1


def _sent_ms(record: Record) -> int:
    return max(record.sent_ms, record.published_ms)
