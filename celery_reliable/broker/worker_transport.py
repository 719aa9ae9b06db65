"""The Redis transport of reliable workers: thin subclasses of kombu's.

A worker keeps what it was delivered in an unacked hash of its own.  Messages in the shared
``unacked`` hash (of workers without the package) keep kombu's own rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.utils.encoding import bytes_to_str

from celery_reliable import events
from celery_reliable.broker.deliveries import Delivery
from celery_reliable.broker.qos import QoS
from celery_reliable.broker.worker_unacked import opened_unacked
from celery_reliable.compat.kombu import OpenChannel, list_key
from celery_reliable.compat.notes import note
from celery_reliable.message import payload_of, returns_of
from celery_reliable.redis_io import losing
from celery_reliable.settings import REDIS_SCHEMES

__all__ = ["Channel", "SentinelTransport", "Transport", "transport_for"]

#: How many messages are taken from the queues in one step, if the worker may hold so many: Redis
#: is busy for well under a millisecond.
_MOST_AT_ONCE = 50
#: Where so many wait, no worker goes idle because another one fetched some ahead.
_PLENTY = 200
#: Whoever has not looked into the queues for so long does not know what waits there.
_LOOK_SECONDS = 1.5


def transport_for(scheme: str) -> str | None:
    """Return our transport's import path for a broker URL's scheme; None when there is none."""
    if scheme == "sentinel":
        return "celery_reliable.transport:SentinelTransport"
    if scheme in REDIS_SCHEMES:
        return "celery_reliable.transport:Transport"
    return None


class Channel(OpenChannel):
    """kombu's Redis channel with an unacked hash, and without a new client object for every
    operation.

    What the worker can begin at once is popped and filed in one step; while plenty waits, what it
    may prefetch too, half of it at a time.  What else it prefetches is taken message by message,
    so that idle workers get their share.  Where nothing waits it waits as kombu does (BRPOP): the
    message that ends the wait is filed in a second step, with what can be begun beside it.
    """

    QoS = QoS

    #: The unacked hash of the worker that consumes through this channel.
    reliable_unacked: str | None = None

    #: Whether a server that takes no writes is as good as none, and is waited for as such.
    has_to_write = True

    _kept_client: Any = None
    _kept_pool: Any = None
    #: How many waited when the queues were last looked at.
    _n_waiting = 0
    _is_closing = False
    #: When they were last looked into (monotonic).
    _looked_at = 0.0
    #: A blocking pop was sent whose answer has not been read.
    _awaits_pop = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: The queues whose messages nobody acknowledges.
        self._unacknowledged: set[str] = set()
        self._consumers_of: dict[str, Callable[[Any], Any]] = {}
        super().__init__(*args, **kwargs)
        if self.has_to_write:
            self._try_to_write()

    def connection_arguments(self, asynchronous: bool) -> dict[str, Any]:
        """Return how connections are made: such that a server that may not write is a lost one."""
        arguments = super().connection_arguments(asynchronous)
        return {**arguments, "connection_class": losing(arguments["connection_class"])}

    def _try_to_write(self) -> None:
        """Raise a connection error where nothing can be written: Celery waits between its attempts
        to connect, and not between those to begin to consume.
        """
        try:
            # Of what is not there, where kombu keeps which queues there are.
            self.client.srem(self.keyprefix_queue % "celery-reliable", "")
        except redis.ResponseError as exc:
            # What its user may not do shows where it is needed.
            events.writing_not_tried(error=exc)
        except BaseException:
            self.close_connections()
            raise

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Consume from a queue."""
        (self._unacknowledged.add if no_ack else self._unacknowledged.discard)(queue)
        self._consumers_of[queue] = callback
        return super().basic_consume(queue, no_ack, callback, *args, **kwargs)

    def new_client(self, asynchronous: bool) -> Any:
        """Return a client; the same for all that is no event loop's."""
        if asynchronous:
            return super().new_client(asynchronous)
        if self._kept_client is None or self._kept_pool is not self.pool_so_far:
            self._kept_client = super().new_client(asynchronous)
            self._kept_pool = self.pool_so_far
        return self._kept_client

    def begin_to_wait(self, timeout: float | None) -> None:
        """Take what waits in the queues, and wait as kombu does where nothing does."""
        self._note_lost_pop()
        if self.reliable_unacked and time.monotonic() - self._looked_at > _LOOK_SECONDS:
            # What has waited for long is not popped before it can be filed.
            self._n_waiting = max(self._n_waiting, 1)
        # Without an event loop nobody would look again when something has ended.
        n_delivered = 0
        # After so many the loop turns: the reply to BRPOP brings it back here at once.
        while (
            self._n_waiting
            and n_delivered < _MOST_AT_ONCE
            and self.qos.unacked.worker.idle_slots is not None
        ):
            least, most = self._may_take()
            is_enough = self._n_waiting >= _PLENTY and 2 * most < self.qos.prefetch_count
            if most <= 0 or (is_enough and not least):
                # It is asked again when some of what it holds has ended.
                return
            n_delivered += self._take(None)
        if not self.reliable_unacked or self.qos.can_consume():
            try:
                super().begin_to_wait(timeout)
            finally:
                self._awaits_pop = self.is_waiting

    def _note_lost_pop(self) -> None:
        """Note that a connection is gone on which a message may have been popped, if it is."""
        unacked = opened_unacked(self.reliable_unacked)
        if self._awaits_pop and unacked is not None:
            # As long as that, the server may go on popping for a connection that it has not seen
            # end.
            unacked.note_lost_pop(float(self.brpop_timeout or 0))
        self._awaits_pop = False

    def end_of_wait(self, **options: Any) -> bool:
        """File what came, take what can be begun beside it, and deliver all of it."""
        if not self.reliable_unacked:
            return super().end_of_wait(**options)
        try:
            popped = self.read_popped(**options)
        except self.connection_errors:
            self._note_lost_pop()
            raise
        self._awaits_pop = False
        self._looked_at = time.monotonic()
        if not popped:
            raise kombu_redis.Empty()
        key, raw = popped
        # kombu's client has taken its prefix away.
        key = bytes_to_str(key)
        queue = key.rsplit(self.sep, 1)[0]
        self._take((key, queue, raw))
        return True

    def _take(self, popped: tuple[str, str, bytes] | None) -> int:
        """File what was popped, pop and file more as far as the prefetch count allows, deliver it
        all, and return how many that was.
        """
        least, most = self._may_take()
        payload, early = None, None
        if popped is None:
            least = max(least, 1)
        else:
            if least and self._is_consumed(popped[1]):
                payload, early = self._early(popped[2])
            least, most = max(0, least - 1), max(0, most - 1)
        queues = self.queues_in_turn()
        lists = [list_key(self, queue, p) for p in self.priority_steps for queue in queues]
        try:
            taken = self.qos.unacked.take(
                queues,
                lists,
                least,
                popped,
                most=most,
                plenty=_PLENTY,
                in_turn=self.takes_turns,
                beside=early and early.step,
            )
        except BaseException:
            if early is not None:
                early.give_up()
            raise
        self._n_waiting, self._looked_at = taken.n_waiting, time.monotonic()
        for delivery in taken.deliveries:
            self.has_had_its_turn(delivery.queue)
        for delivery in taken.deliveries:
            # What was popped is the first.
            try:
                self._deliver(delivery, payload, early)
            finally:
                if early is not None:
                    early.is_under_way = False
            payload, early = None, None
        self.qos.unacked.worker.after_delivery()
        return len(taken.deliveries)

    def _may_take(self) -> tuple[int, int]:
        """Return how many messages the worker can begin now, and how many it may be delivered."""
        # While it closes, its worker has no pool any more.
        if self._is_closing or not self.qos.can_consume():
            return 0, 0
        if self.qos.is_asked_before_each:
            return 1, 1
        ask = self.qos.unacked.worker.idle_slots
        idle = 0 if ask is None else ask()
        may_hold = self.qos.can_consume_max_estimate()
        most = _MOST_AT_ONCE if may_hold is None else min(may_hold, _MOST_AT_ONCE)
        return min(idle, most), most

    def _early(self, raw: bytes) -> tuple[Any, Any]:
        """Return what a list element says, and what goes to the server as it is filed; None for
        what cannot be told, and where nothing does.

        Its body is not looked at before it is filed: that may be the end of this process.
        """
        try:
            payload = payload_of(raw)
        except Exception:
            # It is looked at when it is delivered.
            return None, None
        return payload, self.qos.unacked.worker.early(payload)

    def _deliver(self, delivery: Delivery, payload: Any = None, early: Any = None) -> None:
        unacked = self.qos.unacked
        try:
            payload = payload_of(delivery.raw) if payload is None else payload
        except Exception as exc:
            self._keep(delivery, exc)
            return
        if not self._is_consumed(delivery.queue):
            # Nobody consumes from there any more.
            unacked.give_back(self, delivery.tag, is_last=False)
        elif not returns_of(payload):
            self._open(delivery, payload, early)
        elif unacked.worker.opening(delivery, payload):
            try:
                self._open(delivery, payload, early)
            finally:
                unacked.worker.opened()
        else:
            unacked.remove(delivery.tag)

    def _open(self, delivery: Delivery, payload: Any, early: Any) -> None:
        """Hand a message to its consumer.  Whatever it raises itself, here it ends nothing."""
        try:
            payload["properties"]["delivery_tag"] = delivery.tag
            message = self.Message(payload, channel=self)
        except Exception as exc:
            self._keep(delivery, exc)
            return
        note(message, "early", early)
        is_acknowledged = delivery.queue not in self._unacknowledged
        if is_acknowledged:
            self.qos.append(message, delivery.tag)
            note(message, "holder", delivery.holder)
        self._consumers_of[delivery.queue](message)
        if not is_acknowledged:
            self.qos.unacked.discard(delivery.tag)

    def _keep(self, delivery: Delivery, error: Exception) -> None:
        unacked = self.qos.unacked
        if unacked.worker.on_unreadable(delivery, error):
            unacked.discard(delivery.tag)

    def _is_consumed(self, queue: str) -> bool:
        return self.has_consumer(queue) and not self._is_closing

    def close(self) -> None:
        """Close the channel; a connection that is already broken does not keep it open."""
        self._is_closing = True
        if self.is_waiting:
            try:
                self.end_of_wait()
            except kombu_redis.Empty:
                pass
            except self.connection_errors as exc:
                events.broken_channel_closed(error=exc)
        self.wait_no_more()
        self._note_lost_pop()
        super().close()


class Transport(kombu_redis.Transport):
    """kombu's Redis transport with unacked hashes."""

    Channel = Channel


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """The same behind Sentinel."""


class SentinelTransport(kombu_redis.SentinelTransport):
    """kombu's Sentinel transport with unacked hashes."""

    Channel = SentinelChannel
