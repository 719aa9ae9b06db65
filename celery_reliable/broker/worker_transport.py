"""The Redis transport of reliable workers: thin subclasses of kombu's.

A worker keeps what it was delivered in an unacked hash of its own.  Messages in the shared
``unacked`` hash (of workers without the package) keep kombu's own rules.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis as kombu_redis

from celery_reliable.broker.waiting import WaitingChannel

__all__ = ["Channel", "SentinelTransport", "Transport"]

#: Most messages that one step takes: Redis is busy with them for well under a millisecond.
_MOST_AT_ONCE = 50


class Channel(WaitingChannel):
    """A worker's channel: it takes from the queues what the worker can begin at once, and nothing
    else.  So what one worker cannot begin waits in its queue, where an idle one finds it.

    Where processes of the pool take their own messages, each message that comes has one of them
    begin to.  Otherwise the channel takes, by the same script: it pops a message, files it in the
    worker's unacked hash, and claims its task before anybody opens it.
    """

    _n_asked = 1

    def begin_to_wait(self, timeout: float | None) -> None:
        """Take what is in the queues, and wait for more."""
        if self.reliable_unacked is None:
            super().begin_to_wait(timeout)
        else:
            self.forget_wait()
            self.go_on()

    def end_of_wait(self, **options: Any) -> bool:
        """Take what has come."""
        if not self.has_waited_here:
            # For another queue than the worker's: replies to what it asked at its start.
            return super().end_of_wait(**options)
        self.hear()
        self._take_what_is_there()
        raise kombu_redis.Empty()

    def go_on(self) -> None:
        """Take what has come, and wait for more if more can begin."""
        self.qos.unacked.worker.hand_over()
        self._leave_out()
        self._take_what_is_there()
        if not self._may_take():
            return
        if self.has_to_pause:
            self.pause()
        else:
            self.wait_for_all()

    def _take_what_is_there(self) -> None:
        """Have begun what waits, as long as something can begin."""
        worker, n_taken = self.qos.unacked.worker, 0
        # After so many the main loop gets a turn.
        while self._n_waiting and n_taken < _MOST_AT_ONCE:
            n_free = self._may_take()
            if not n_free:
                # Workers without the package look into no inbox.
                if self._has_moved:
                    self.bring_back()
                return
            if worker.may_work_off():
                n_begun = min(n_free, self._n_waiting)
                self._n_waiting -= n_begun
                worker.work_off(self, n_begun)
            else:
                n_taken += self._take(min(n_free, self._n_asked))

    def _leave_out(self) -> None:
        """Ask no queue that an order keeps the worker from."""
        is_held_back = self.qos.unacked.worker.is_held_back
        # Also when nothing changed: kombu asks all again when a queue is added or cancelled.
        self.leave_out(frozenset(filter(is_held_back, self.active_queues)))

    def _take(self, most: int) -> int:
        """Take up to so many messages and deliver them; return how many that were."""
        queues, unacked = self.queues_in_turn(), self.qos.unacked
        # Of queues that take turns the next one comes first each time.
        orders = [
            [*queues[n:], *queues[:n]] if self.takes_turns else queues
            for n in (one % max(len(queues), 1) for one in range(most))
        ]
        deliveries = unacked.take([unacked.queues(one, self.lists(one)) for one in orders])
        if len(deliveries) == most:
            # More is asked for at once as long as more is there.
            self._n_asked = min(2 * self._n_asked, _MOST_AT_ONCE)
        else:
            self._n_asked, self._n_waiting = 1, 0
        for delivery in deliveries:
            self.has_had_its_turn(delivery.queue)
        self.deliver_all(deliveries)
        unacked.worker.hand_over()
        return len(deliveries)

    @property
    def _is_leaving(self) -> bool:
        """Whether the worker leaves: it has no pool any more, or would take again what it gives
        back.
        """
        return self._is_closing or self.qos.unacked.is_leaving

    def _may_take(self) -> int:
        """Return how many messages the worker can begin now."""
        # With greenlets it waits until one is free.
        idle: int = 0 if self._is_leaving else self.qos.unacked.worker.idle_slots()
        if self._is_leaving or not self.qos.can_consume():
            return 0
        may_hold: int | None = self.qos.can_consume_max_estimate()
        return idle if may_hold is None else min(idle, may_hold)

    def close(self) -> None:
        """Close the channel; a connection that is already broken does not keep it open."""
        self.stop_waiting()
        super().close()


class Transport(kombu_redis.Transport):
    """kombu's Redis transport with unacked hashes."""

    Channel = Channel


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """The same behind Sentinel."""


class SentinelTransport(kombu_redis.SentinelTransport):
    """kombu's Sentinel transport with unacked hashes."""

    Channel = SentinelChannel
