"""The Redis transport of reliable workers: thin subclasses of kombu's.

A worker keeps what it was delivered in an unacked hash of its own.  Messages in the shared
``unacked`` hash (of workers without the package) keep kombu's own rules.
"""

from __future__ import annotations

import time
from typing import Any

from kombu.transport import redis as kombu_redis
from kombu.utils.encoding import bytes_to_str

from celery_reliable.broker.arriving import Arriving
from celery_reliable.compat.kombu import list_key

__all__ = ["Channel", "SentinelTransport", "Transport"]

#: Most messages that one step takes: Redis is busy with them for well under a millisecond.
_MOST_AT_ONCE = 50
#: While so many messages wait, no worker goes idle because another one prefetches.
_PLENTY = 200
#: For this long a count of waiting messages is believed.
_LOOK_SECONDS = 1.5


class Channel(Arriving):
    """A worker's channel: it takes messages from the queues into the worker's unacked hash.

    Taking is one step that pops messages and files them.  The worker takes as many as it can begin
    at once.  Beyond that it may prefetch: up to half of the rest at a time while plenty of messages
    wait, otherwise single ones, so that idle workers get their share.  A worker whose slots are
    busy for long prefetches nothing (`WorkerHooks.room`).  If the queues are empty it waits, unless
    enough waits in the worker (`WorkerHooks.is_supplied`): for a message that is filed as it comes
    (`Arriving`), or else as kombu does (BRPOP).  Then the message that ends the wait is filed by a
    second step, which takes what else can be begun.
    """

    #: Queues that an order of an operator keeps the worker from, as it was when it asked last.
    _left_out: frozenset[str] = frozenset()

    def begin_to_wait(self, timeout: float | None) -> None:
        """Take what is in the queues; if they are empty, wait."""
        if self.reliable_unacked is None:
            super().begin_to_wait(timeout)
            return
        worker = self.qos.unacked.worker
        self.note_lost_wait()
        if self._lets_begin:
            # To ask would wake the server, which takes a core from the process that begins.
            self._lets_begin = False
            return
        worker.hand_over()
        self._leave_out()
        if self._n_waiting:
            worker.work_off(self, self._n_waiting)
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            # Something may wait by now; a BRPOP would pop it before it can be filed.
            self._n_waiting = max(self._n_waiting, 1)
        if not self._take_what_is_there():
            # Celery asks again when some of what the worker holds has ended.
            return
        if not self._may_take()[1] or worker.is_supplied() or self.await_arrival():
            return
        try:
            super().begin_to_wait(timeout)
        finally:
            self._awaits_pop = self.is_waiting

    def _take_what_is_there(self) -> bool:
        """Take what waits in the queues, as long as more may be taken; return whether more may."""
        n_delivered, may_take = 0, True
        # After so many the main loop gets a turn.  It comes back at once, as BRPOP has an answer.
        while (
            may_take
            and self._n_waiting
            and n_delivered < _MOST_AT_ONCE
            and self.qos.unacked.worker.idle_slots is not None
        ):
            least, most = self._may_take()
            is_enough = self._n_waiting >= _PLENTY and 2 * most < self.qos.prefetch_count
            may_take = most > 0 and (least > 0 or not is_enough)
            if may_take:
                n_delivered += self._take(None)
        return may_take

    def _leave_out(self) -> None:
        """Ask no queue that an order keeps the worker from."""
        is_held_back = self.qos.unacked.worker.is_held_back
        left_out = frozenset(filter(is_held_back, self.active_queues))
        if left_out or self._left_out:
            # Also when nothing changed: kombu asks all again when a queue is added or cancelled.
            self.leave_out(left_out)
        self._left_out = left_out

    def end_of_wait(self, **options: Any) -> bool:
        """File the message that came, take what else can be begun, and deliver all of it."""
        if self.reliable_unacked is None:
            return super().end_of_wait(**options)
        if self._awaited is not None:
            return self.end_of_arrival()
        try:
            popped = self.read_popped(**options)
        except self.connection_errors:
            self.note_lost_wait()
            raise
        self._awaits_pop = False
        self._looked_at = time.monotonic()
        if not popped:
            raise kombu_redis.Empty()
        # kombu's client has removed the channel's prefix.
        key, raw = bytes_to_str(popped[0]), popped[1]
        queue = key.rsplit(self.sep, 1)[0]
        self._take((key, queue, raw))
        return True

    def _take(self, popped: tuple[str, str, bytes] | None) -> int:
        """File *popped*, if there is one, and take more as far as the prefetch count allows.

        Delivers all of it.  Returns how many messages that was.
        """
        least, most = self._may_take()
        if popped is None:
            least = max(least, 1)
        else:
            least, most = max(0, least - 1), max(0, most - 1)
        queues = self.queues_in_turn()
        lists = [list_key(self, queue, p) for p in self.priority_steps for queue in queues]
        taken = self.qos.unacked.take(
            queues, lists, least, popped, most=most, plenty=_PLENTY, in_turn=self.takes_turns
        )
        self._n_waiting, self._looked_at = taken.n_waiting, time.monotonic()
        for delivery in taken.deliveries:
            self.has_had_its_turn(delivery.queue)
        self.deliver_all(taken.deliveries)
        was_handed = self.qos.unacked.worker.hand_over()
        self._lets_begin = was_handed and popped is not None and not self._n_waiting
        return len(taken.deliveries)

    def _may_take(self) -> tuple[int, int]:
        """Return how many messages the worker can begin now, and how many it may be delivered."""
        # A worker whose channel closes has no pool any more that could be asked.
        if self._is_closing or not self.qos.can_consume():
            return 0, 0
        room = self.qos.unacked.worker.room()
        if self.qos.is_asked_before_each:
            # Who is asked knows nothing of processes that take messages by themselves.
            return (1, 1) if room is None or room else (0, 0)
        ask = self.qos.unacked.worker.idle_slots
        idle = 0 if ask is None else ask()
        may_hold = self.qos.can_consume_max_estimate()
        most = _MOST_AT_ONCE if may_hold is None else min(may_hold, _MOST_AT_ONCE)
        if room is not None:
            most = min(most, room)
        return min(idle, most), most

    def close(self) -> None:
        """Close the channel; a connection that is already broken does not keep it open."""
        self._is_closing = True
        self.end_waiting()
        super().close()


class Transport(kombu_redis.Transport):
    """kombu's Redis transport with unacked hashes."""

    Channel = Channel


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """The same behind Sentinel."""


class SentinelTransport(kombu_redis.SentinelTransport):
    """kombu's Sentinel transport with unacked hashes."""

    Channel = SentinelChannel
