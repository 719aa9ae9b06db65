"""Whether the message of a task that nobody has begun can still be somewhere."""

from __future__ import annotations

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import Ledger
from celery_reliable.message import Envelope
from celery_reliable.model import Record
from celery_reliable.recovery.broker_view import BrokerView

__all__ = ["Presence"]

#: What waits in a queue is looked at at least once in this many QUEUED_SECONDS.
RAREST_LOOK = 10


class Presence:
    """What one pass has seen of queues and unacked hashes.  Each is read once, when needed."""

    def __init__(
        self,
        ledger: Ledger,
        broker: BrokerView,
        queued_ms: int,
        *,
        alive: list[WorkerLease],
        dead: list[WorkerLease],
    ) -> None:
        self._ledger = ledger
        self._broker = broker
        self._queued_ms = queued_ms
        self._alive = alive
        self._dead = dead
        self._ends: dict[tuple[str, str, str], list[tuple[set[str], float]]] = {}
        self._held: set[str] | None = None

    def is_held(self, task_id: str) -> bool:
        """Whether a worker holds its message, other than a dead one that it is taken from."""
        if self._held is None:
            self._held = set()
            if self._broker.is_redis:
                # A server that lost records may know nothing of a worker that lives.
                strangers = {*self._broker.unacked_names()} - {
                    lease.unacked for lease in self._dead
                }
                hashes = strangers | {one.unacked for one in self._alive if one.unacked}
                self._held = self._broker.task_ids_in(hashes)
        return task_id in self._held

    def wait_in_queue_ms(self, record: Record, now_ms: int) -> int:
        """Return after how many ms to look again if the message can still be in its queue, else 0.

        It can be there if what is popped next was sent before it, and in doubt.  A wrong 0 costs a
        second message, which the claim refuses.
        """
        envelope = Envelope.from_text(record.message)
        where = (envelope.exchange, envelope.routing_key, str(envelope.properties.get("priority")))
        # Read once in a pass, however many records are overdue.
        if where not in self._ends:
            self._ends[where] = self._ends_of(envelope)
        sent_ms, queued_ms = _sent_ms(record), self._queued_ms
        found = [
            oldest
            for ids, oldest in self._ends[where]
            # If its time of sending is in the future, the clock was set back since.  Then it was
            # sent before whatever has a time in the past.
            if record.task_id in ids or (oldest <= sent_ms and not oldest <= now_ms < sent_ms)
        ]
        if not any(found):
            return queued_ms if found else 0
        # The longer it has waited, the rarer the looks: a backlog that nobody works off must not be
        # read over and over.
        return min(max(queued_ms, (now_ms - sent_ms) // 2), RAREST_LOOK * queued_ms)

    def _ends_of(self, envelope: Envelope) -> list[tuple[set[str], float]]:
        """Return, of each queue that a message leads to, the ids at the end that is popped next,
        and when the oldest of them was sent, in ms; 0 if that is not known.
        """
        if not self._broker.is_redis:
            # Such a broker keeps messages itself.
            return [(set(), 0.0)] if self._broker.waiting(envelope) > 0 else []
        ends = []
        for head in self._broker.heads(envelope):
            found = self._ledger.find_each([task_id for task_id in head if task_id])
            sent = [_sent_ms(one.record) for one in found if one.is_readable and one.record]
            if head:
                ends.append((set(head), float(min(sent, default=0))))
        return ends


def _sent_ms(record: Record) -> int:
    return max(record.sent_ms, record.published_ms)
