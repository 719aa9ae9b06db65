"""How a worker's channel waits for a message that is filed as it leaves its queue (`inbox`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import redis
from kombu.transport import redis as kombu_redis

from celery_reliable.broker.deliveries import Arrival, Awaited, Queues
from celery_reliable.broker.inbox import INBOX_PREFIX, Inbox
from celery_reliable.broker.worker_unacked import opened_unacked
from celery_reliable.compat.kombu import list_key

__all__ = ["Arriving"]


class Arriving:
    """Mixed into the channel.

    BLMOVE waits for one list.  So this is for a worker that consumes one queue, and for the list of
    its first priority.  The others are looked at once for each wait; as soon as a message is seen
    there, the worker waits for all of them as kombu does, for as long as it lives.
    """

    qos: Any
    queues_in_turn: Any
    has_had_its_turn: Any
    is_consumed: Any
    priority_steps: Any
    takes_turns: Any
    brpop_timeout: Any
    reliable_unacked: str | None
    connection_errors: Any
    wait_by: Callable[..., None]
    read_replies: Callable[[int], list[Any]]
    _n_waiting: int
    _looked_at: float
    _lets_begin: bool
    _consumed: Any
    #: A blocking pop was sent whose answer has not been read.
    _awaits_pop = False
    #: What was sent and not answered: how the worker sees it, and where it waits.
    _awaited: tuple[Awaited, Inbox] | None = None
    _has_brought_back = False

    def await_arrival(self, timeout: float | None) -> bool:
        """Begin to wait for a message that is filed as it comes; False where that cannot be."""
        unacked = self.qos.unacked
        arrivals = unacked.worker.arrivals if unacked is not None else None
        queues = self.queues_in_turn()
        if arrivals is None or not arrivals.may_wait:
            return False
        if len(queues) != 1 or self._has_priorities:
            self._bring_back(unacked, queues)
            return False
        inbox = self._inbox_of(unacked, queues[0])
        where = unacked.queues(queues, (), arrivals.left_out())
        where = Queues(
            where.unacked, where.listed, where.name, where.names, [inbox.key], where.cold
        )
        for late in arrivals.look(where, self.is_consumed):
            self._deliver_arrival(late)
        awaited = arrivals.next(where)
        if awaited is None:
            return False
        self._awaited = awaited, inbox
        seconds = self.brpop_timeout if timeout is None else timeout
        try:
            self.wait_by(inbox.commands(awaited.call, seconds or 0))
        except BaseException:
            self.note_lost_wait()
            raise
        return True

    def _inbox_of(self, unacked: Any, queue: str) -> Inbox:
        lists = [unacked.prefix + list_key(self, queue, step) for step in self.priority_steps]
        return Inbox(lists[0], unacked.prefix + INBOX_PREFIX + lists[0], lists[1:])

    def _bring_back(self, unacked: Any, queues: Sequence[str]) -> None:
        """Return to their queues what a server that died has left in their inboxes: nobody may wait
        there any more.  Once for each connection.
        """
        if self._has_brought_back:
            return
        self._has_brought_back = True
        for inbox in [self._inbox_of(unacked, queue) for queue in queues]:
            try:
                while unacked.client.lmove(inbox.key, inbox.list_key, "RIGHT", "RIGHT"):
                    pass
            except redis.ResponseError as error:
                unacked.worker.arrivals.refuse(error)
                return

    @property
    def _has_priorities(self) -> bool:
        """Whether tasks have priorities, as far as the transport's options tell."""
        steps = list(self.priority_steps)
        is_default = steps == list(kombu_redis.PRIORITY_STEPS) and self.takes_turns
        return len(steps) > 1 and not is_default

    @property
    def awaits_arrival(self) -> bool:
        """Whether such a wait was begun, and has not ended."""
        return self._awaited is not None

    def note_lost_wait(self) -> None:
        """Tell the worker of a wait whose connection is gone: it may have taken a message.

        Until it times out, the server may do that for a connection whose end it has not seen.
        """
        seconds, unacked = float(self.brpop_timeout or 0), opened_unacked(self.reliable_unacked)
        if self._awaits_pop and unacked is not None:
            unacked.note_lost_pop(seconds)
        if self._awaited is not None:
            self._awaited[0].lose(seconds)
        self._awaits_pop, self._awaited = False, None

    def end_of_arrival(self) -> bool:
        """Deliver the message that came.  Raises kombu's Empty if none did."""
        assert self._awaited is not None
        awaited, inbox = self._awaited
        try:
            came = inbox.read(self.read_replies(len(inbox.commands(awaited.call, 0))))
        except BaseException:
            self.note_lost_wait()
            raise
        self._awaited = None
        self._n_waiting, self._looked_at = came.n_waiting + came.n_others, time.monotonic()
        arrivals = self.qos.unacked.worker.arrivals
        if came.n_others:
            arrivals.note_priorities()
        if came.refusal is not None:
            arrivals.refuse(came.refusal)
        if came.filed is None:
            awaited.fail(is_unknown=came.is_unknown)
            raise kombu_redis.Empty()
        arrival = awaited.hear(came.filed, self.is_consumed)
        if arrival is None:
            raise kombu_redis.Empty()
        self._deliver_arrival(arrival)
        return True

    def _deliver_arrival(self, arrival: Arrival) -> None:
        self.has_had_its_turn(arrival.delivery.queue)
        self._consumed.deliver_all([arrival.delivery], arrival.payload, arrival.early)
        worker = self.qos.unacked.worker
        was_handed = worker.hand_over()
        self._lets_begin = was_handed and not self._n_waiting
        worker.after_delivery()
