"""The Redis transport of reliable workers: thin subclasses of kombu's.

A worker keeps what it was delivered in a room of its own.  Messages in the shared ``unacked`` hash
(of workers without the package) keep kombu's own rules.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from kombu.utils.scheduling import round_robin_cycle

from celery_reliable.config import REDIS_SCHEMES
from celery_reliable.envelope import HEADER
from celery_reliable.ledger.passing import losing
from celery_reliable.rooms import Delivery, Room, opened_room, returns_of, room_of

__all__ = [
    "Channel",
    "QoS",
    "SentinelTransport",
    "Transport",
    "transport_for",
]

logger = logging.getLogger(__name__)

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


class QoS(kombu_redis.QoS):
    """Keeps deliveries in the worker's room, if the channel has one."""

    @property
    def room(self) -> Room | None:
        """The room, or None for a channel without one (a producer's, say)."""
        name = self.channel.reliable_room
        return room_of(name, self.channel) if name else None

    def append(self, message: Any, delivery_tag: str) -> None:
        """Count the message as delivered.

        What was taken from a queue is in the room already; what was broadcast is in no room, as it
        was in no queue that it could be returned to.
        """
        if self.room is None:
            super().append(message, delivery_tag)
        else:
            virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Remove the message from the room; never raises because the broker or the channel is
        gone.
        """
        room = self.room
        if room is None:
            super().ack(delivery_tag)
            return
        message = self._delivered.get(delivery_tag)
        if message is not None and HEADER in (message.headers or {}):
            # What is still in the room when its worker dies is compared with its record.
            room.remove_soon(delivery_tag)
        else:
            room.remove(delivery_tag)
        virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the message back behind the others, or remove it."""
        room = self.room
        if room is None:
            super().reject(delivery_tag, requeue)
            return
        if not requeue:
            room.remove(delivery_tag)
            virtual.QoS.ack(self, delivery_tag)
            return
        try:
            room.give_back(self.channel, delivery_tag, is_last=True)
        finally:
            # Celery only logs what is raised here: what stays is given back as nobody holds it.
            self.forget(delivery_tag)

    def forget(self, delivery_tag: str) -> None:
        """Hold the message no more, and leave it in the room if it is still there: what nobody
        holds is given back.
        """
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back what this channel was delivered and nobody runs, when it is closed.

        After a lost connection, what runs stays in the room: its task goes on and is acknowledged
        there.
        """
        room = opened_room(self.channel.reliable_room)
        if room is None:
            if self.channel.connection is not None and self.channel.connection.client is not None:
                super().restore_unacked_once(stderr)
            return
        self._on_collect.cancel()
        self._flush()
        delivered = self._delivered
        if getattr(delivered, "restored", False):
            return
        delivered.restored = True
        try:
            if room.is_leaving:
                room.before_leaving()
                room.catch_up()
                # What was filed is there also if a signal came before it was delivered.
                tags = [*delivered, *(room.tags() - set(delivered))]
            else:
                kept = room.running_tags()
                tags = [tag for tag in delivered if tag not in kept]
            # The newest first, as each goes in front of the others.
            for tag in reversed(tags):
                room.give_back(self.channel, tag, is_last=False)
        except (redis.RedisError, OSError) as exc:
            logger.warning("deliveries_left_in_room room=%s error=%r", room.name, exc)
        delivered.clear()


class Channel(kombu_redis.Channel):
    """kombu's Redis channel with a room, and without a new client object for every operation.

    What the worker can begin at once is popped and filed in one step; while plenty waits, what it
    may prefetch too, half of it at a time.  What else it prefetches is taken message by message,
    so that idle workers get their share.  Where nothing waits it waits as kombu does (BRPOP): the
    message that ends the wait is filed in a second step, with what can be begun beside it.
    """

    QoS = QoS

    #: The room of the worker that consumes through this channel.
    reliable_room: str | None = None

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

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        params: dict[str, Any] = super()._connparams(asynchronous)
        params["connection_class"] = losing(params["connection_class"])
        return params

    def _try_to_write(self) -> None:
        """Raise a connection error where nothing can be written: Celery waits between its attempts
        to connect, and not between those to begin to consume.
        """
        try:
            # Of what is not there, where kombu keeps which queues there are.
            self.client.srem(self.keyprefix_queue % "celery-reliable", "")
        except redis.ResponseError as exc:
            # What its user may not do shows where it is needed.
            logger.debug("writing_not_tried error=%r", exc)
        except BaseException:
            self._disconnect_pools()
            raise

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Consume from a queue."""
        (self._unacknowledged.add if no_ack else self._unacknowledged.discard)(queue)
        self._consumers_of[queue] = callback
        return super().basic_consume(queue, no_ack, callback, *args, **kwargs)

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._kept_client is None or self._kept_pool is not self._pool:
            self._kept_client = super()._create_client()
            self._kept_pool = self._pool
        return self._kept_client

    def _brpop_start(self, timeout: float | None = None) -> None:
        self._note_lost_pop()
        if self.reliable_room and time.monotonic() - self._looked_at > _LOOK_SECONDS:
            # What has waited for long is not popped before it can be filed.
            self._n_waiting = max(self._n_waiting, 1)
        # Without an event loop nobody would look again when something has ended.
        n_delivered = 0
        # After so many the loop turns: the reply to BRPOP brings it back here at once.
        while (
            self._n_waiting and n_delivered < _MOST_AT_ONCE and self.qos.room.idle_slots is not None
        ):
            least, most = self._may_take()
            is_enough = self._n_waiting >= _PLENTY and 2 * most < self.qos.prefetch_count
            if most <= 0 or (is_enough and not least):
                # It is asked again when some of what it holds has ended.
                return
            n_delivered += self._take(None)
        if not self.reliable_room or self.qos.can_consume():
            try:
                super()._brpop_start(timeout)
            finally:
                self._awaits_pop = bool(self._in_poll)

    def _note_lost_pop(self) -> None:
        """Note that a connection is gone on which a message may have been popped, if it is."""
        room = opened_room(self.reliable_room)
        if self._awaits_pop and room is not None:
            # As long as that, the server may go on popping for a connection that it has not seen
            # end.
            room.note_lost_pop(float(self.brpop_timeout or 0))
        self._awaits_pop = False

    def _brpop_read(self, **options: Any) -> bool:
        if not self.reliable_room:
            return bool(super()._brpop_read(**options))
        popped = None
        try:
            popped = self.client.parse_response(self.client.connection, "BRPOP", **options)
            self._awaits_pop = False
            self._looked_at = time.monotonic()
        except self.connection_errors:
            self.client.connection.disconnect()
            self._note_lost_pop()
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
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
        queues = self._queue_cycle.consume(len(self.active_queues))
        lists = [self._q_for_pri(queue, p) for p in self.priority_steps for queue in queues]
        # Of other orders of queues kombu's BRPOP takes the first that has something.
        try:
            taken = self.qos.room.take(
                queues,
                lists,
                least,
                popped,
                most=most,
                plenty=_PLENTY,
                in_turn=type(self._queue_cycle) is round_robin_cycle,
                beside=early and early.step,
            )
        except BaseException:
            if early is not None:
                early.give_up()
            raise
        self._n_waiting, self._looked_at = taken.n_waiting, time.monotonic()
        for delivery in taken.deliveries:
            self._queue_cycle.rotate(delivery.queue)
        for delivery in taken.deliveries:
            # What was popped is the first.
            try:
                self._deliver(delivery, payload, early)
            finally:
                if early is not None:
                    early.is_under_way = False
            payload, early = None, None
        self.qos.room.after_delivery()
        return len(taken.deliveries)

    def _may_take(self) -> tuple[int, int]:
        """Return how many messages the worker can begin now, and how many it may be delivered."""
        # While it closes, its worker has no pool any more.
        if self._is_closing or not self.qos.can_consume():
            return 0, 0
        if "can_consume" in vars(self.qos):
            # `worker_disable_prefetch`: Celery wants to be asked before each.
            return 1, 1
        ask = self.qos.room.idle_slots
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
            payload = _payload(raw)
        except Exception:
            # It is looked at when it is delivered.
            return None, None
        return payload, self.qos.room.early(payload)

    def _deliver(self, delivery: Delivery, payload: Any = None, early: Any = None) -> None:
        room = self.qos.room
        try:
            payload = _payload(delivery.raw) if payload is None else payload
        except Exception as exc:
            self._keep(delivery, exc)
            return
        if not self._is_consumed(delivery.queue):
            # Nobody consumes from there any more.
            room.give_back(self, delivery.tag, is_last=False)
        elif not returns_of(payload):
            self._open(delivery, payload, early)
        elif room.opening(delivery, payload):
            try:
                self._open(delivery, payload, early)
            finally:
                room.opened()
        else:
            room.remove(delivery.tag)

    def _open(self, delivery: Delivery, payload: Any, early: Any) -> None:
        """Hand a message to its consumer.  Whatever it raises itself, here it ends nothing."""
        try:
            payload["properties"]["delivery_tag"] = delivery.tag
            message = self.Message(payload, channel=self)
        except Exception as exc:
            self._keep(delivery, exc)
            return
        message.reliable_early = early
        is_acknowledged = delivery.queue not in self._unacknowledged
        if is_acknowledged:
            self.qos.append(message, delivery.tag)
            message.reliable_holder = delivery.holder
        self._consumers_of[delivery.queue](message)
        if not is_acknowledged:
            self.qos.room.discard(delivery.tag)

    def _keep(self, delivery: Delivery, error: Exception) -> None:
        room = self.qos.room
        if room.on_unreadable(delivery, error):
            room.discard(delivery.tag)

    def _is_consumed(self, queue: str) -> bool:
        return queue in self.connection._callbacks and not self._is_closing

    def close(self) -> None:
        """Close the channel; a connection that is already broken does not keep it open."""
        self._is_closing = True
        if self._in_poll:
            try:
                self._brpop_read()
            except kombu_redis.Empty:
                pass
            except self.connection_errors:
                logger.debug("channel_closed_with_broken_connection", exc_info=True)
        self._in_poll = None
        self._note_lost_pop()
        super().close()


def _payload(raw: bytes) -> Any:
    payload = loads(bytes_to_str(raw))
    _check_shape(payload)
    return payload


def _check_shape(message: Any) -> None:
    """Raise ValueError for what kombu would choke on later, in the worker's main loop."""
    properties = message["properties"]
    delivery = properties["delivery_info"]
    is_message = (
        isinstance(properties, dict)
        and isinstance(delivery["exchange"], str)
        and isinstance(delivery["routing_key"], str)
        and isinstance(message["body"], str)
        and isinstance(message.get("headers") or {}, dict)
    )
    # Celery looks both up in dictionaries.
    told = (message.get("headers") or {}) if is_message else {}
    if not is_message or not all(isinstance(told.get(k, ""), str) for k in ("task", "id")):
        raise ValueError("a list element that is no message of kombu's")


class Transport(kombu_redis.Transport):
    """kombu's Redis transport with rooms."""

    Channel = Channel


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """The same behind Sentinel."""


class SentinelTransport(kombu_redis.SentinelTransport):
    """kombu's Sentinel transport with rooms."""

    Channel = SentinelChannel
