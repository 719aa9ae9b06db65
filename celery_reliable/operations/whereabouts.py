"""Where the message of one queued task is: in its queue, and behind how many, or with a worker."""

from __future__ import annotations

from dataclasses import replace

from celery_reliable.ledger import Ledger
from celery_reliable.message import Envelope
from celery_reliable.operations.waits import Seen
from celery_reliable.recovery import BrokerView

__all__ = ["Whereabouts"]

#: Messages looked at of those that are popped next, of each priority.
_LOOKED_AT = 50
#: Messages looked at of those that workers were delivered.
_MOST_DELIVERED = 2_000


class Whereabouts:
    """Looks for messages at the broker.  Raises kombu's errors."""

    def __init__(self, ledger: Ledger, broker: BrokerView) -> None:
        self._ledger = ledger
        self._broker = broker

    def of(self, envelope: Envelope, task_id: str, seen: Seen) -> Seen:
        """Return *seen* with where the message is, as far as that was found."""
        queues = self._broker.reached(envelope.exchange, envelope.routing_key)
        seen = replace(seen, queue=queues[0])
        if not self._broker.is_redis:
            found = self._broker.declared(queues[0])
            return seen if found is None else replace(seen, depth=found[0])
        # First the queue: who fetches it meanwhile has it when workers are looked at.
        in_queue = self._in_queue(queues[0], task_id, seen)
        if in_queue.before is not None:
            return in_queue
        return self._with_worker(task_id, in_queue)

    def _in_queue(self, queue: str, task_id: str, seen: Seen) -> Seen:
        steps = self._broker.steps(queue, _LOOKED_AT)
        depth = sum(step.depth for step in steps)
        # As far as all was looked at, absence is known.
        is_in_queue = any(step.depth > _LOOKED_AT for step in steps)
        before = 0
        for step in steps:
            if task_id in step.head:
                before += step.head.index(task_id)
                return replace(seen, before=before, depth=depth)
            before += step.depth
        return replace(seen, depth=depth, is_in_queue=is_in_queue)

    def _with_worker(self, task_id: str, seen: Seen) -> Seen:
        left = _MOST_DELIVERED
        for lease in self._ledger.workers.leases():
            if not lease.unacked or left <= 0:
                continue
            entries = self._broker.unacked(lease.unacked).heads(left)
            left -= len(entries)
            if any(entry.task_id == task_id for entry in entries):
                return replace(seen, fetched_by=lease.worker)
        # What was not looked at may have it.
        return seen if left > 0 else replace(seen, is_in_queue=True)
