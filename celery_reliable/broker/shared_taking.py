"""What a worker's channel has for processes of its pool that take messages by themselves."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from celery_reliable.broker.deliveries import Delivery, Queues
from celery_reliable.compat.kombu import list_key

__all__ = ["SharedTaking"]


class SharedTaking:
    """Mixed into the channel."""

    qos: Any
    queues_in_turn: Any
    has_consumer: Any
    reliable_unacked: str | None
    priority_steps: Any
    conn_or_acquire: Any
    connection_errors: Any
    _is_closing: bool
    _n_waiting: int
    _looked_at: float
    _lets_begin: bool
    _consumed: Any
    has_had_its_turn: Any
    #: What was asked for last, and the answer.
    _shared: tuple[Any, Queues] | None = None

    def is_consumed(self, queue: str) -> bool:
        """Whether somebody consumes from a queue, and goes on to."""
        return (
            self.has_consumer(queue)
            and not self._is_closing
            and not (self.reliable_unacked and self.qos.unacked.worker.is_held_back(queue))
        )

    def queues_for_shift(self, cold: Sequence[str]) -> Queues | None:
        """Return where a process of the worker may take messages by itself; None: nowhere.

        *cold*: the names of tasks that it does not claim.
        """
        queues = [queue for queue in self.queues_in_turn() if self.is_consumed(queue)]
        if not queues or self._is_closing:
            return None
        where = (queues, cold)
        if self._shared is None or self._shared[0] != where:
            lists = [list_key(self, queue, p) for p in self.priority_steps for queue in queues]
            self._shared = where, self.qos.unacked.queues(queues, lists, cold)
        return self._shared[1]

    def count_waiting(self) -> int:
        """Return how many messages wait in the queues that the worker consumes; 0 while the broker
        cannot be asked.
        """
        queues = [queue for queue in self.queues_in_turn() if self.is_consumed(queue)]
        try:
            with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipe:
                for queue in queues:
                    for priority in self.priority_steps:
                        pipe.llen(list_key(self, queue, priority))
                return sum(pipe.execute())
        except self.connection_errors:
            # The main loop finds that by itself.
            return 0

    def note_empty(self) -> None:
        """Note that the queues were seen to be empty."""
        self._n_waiting, self._looked_at = 0, time.monotonic()

    def deliver(self, delivery: Delivery) -> None:
        """Deliver a message that is filed already."""
        self._consumed.deliver_all([delivery], None, None)

    def begin_with(self, key: str, queue: str, message: bytes) -> bool:
        """Hand a message that was popped to an idle process of the pool, which files it; False when
        that is to be done here.
        """
        worker = self.qos.unacked.worker
        if not self.is_consumed(queue) or not worker.begin_with(self, key, queue, message):
            return False
        self.has_had_its_turn(queue)
        self._lets_begin = worker.hand_over()
        worker.after_delivery()
        return True
