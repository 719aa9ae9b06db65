"""The Redis transport of reliable workers: thin subclasses of kombu's.

A worker keeps what it was delivered in an unacked hash of its own, its room.  Nothing is
redelivered from it because of time; when the worker is declared dead, the sweeper gives back what
is in it.  Messages in the shared ``unacked`` hash (of workers without the package) keep kombu's own
rules.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import redis
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

__all__ = [
    "ROOM_PREFIX",
    "Channel",
    "QoS",
    "Room",
    "SentinelTransport",
    "Transport",
    "room_of",
    "transport_for",
]

logger = logging.getLogger(__name__)

#: What the names of rooms begin with; kombu's shared hash is called "unacked".
ROOM_PREFIX = "unacked:"

#: Moves one message out of a room into its queues; nothing happens when it is not there any more.
_GIVE_BACK = """
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
for i = 2, #KEYS do redis.call(ARGV[2], KEYS[i], ARGV[3]) end
return 1
"""


def transport_for(scheme: str) -> str | None:
    """Return our transport's import path for a broker URL's scheme; None when there is none."""
    if scheme == "sentinel":
        return "celery_reliable.transport:SentinelTransport"
    if scheme in ("redis", "rediss", "redis+socket", "rediss+socket", "unix"):
        return "celery_reliable.transport:Transport"
    return None


class Room:
    """One worker's own unacked hash at the broker.

    It has its own connections, as an acknowledgement may come long after the channel that delivered
    the message was closed.  What cannot be removed while the broker is away is removed later.
    """

    def __init__(self, name: str, pool: redis.ConnectionPool, prefix: str) -> None:
        self.name = name
        self._key = prefix + name
        self._prefix = prefix
        self._client = redis.Redis(connection_pool=pool)
        self._give_back = self._client.register_script(_GIVE_BACK)
        self._unremoved: set[str] = set()
        self._lock = threading.Lock()
        self._strangers: set[str] = set()
        #: Tells which delivery tags the worker still runs; the worker sets it.
        self.running_tags: Callable[[], set[str]] = set
        #: Called before everything is given back at a shutdown; the worker sets it.
        self.before_leaving: Callable[[], None] = _nothing
        self.is_leaving = False

    def after_fork(self) -> None:
        """Free the lock that another thread may have held at the fork."""
        self._lock = threading.Lock()

    # -- one delivery

    def file(self, tag: str, raw: bytes, exchange: str, routing_key: str) -> None:
        """File a delivered message."""
        tail = dumps([exchange, routing_key, int(time.time() * 1000)])
        self._client.hset(self._key, tag, b"[" + raw + b"," + tail[1:].encode())

    def remove(self, tag: str) -> None:
        """Remove an acknowledged message, now or when the broker is back."""
        try:
            self._client.hdel(self._key, tag)
        except (redis.RedisError, OSError) as exc:
            logger.warning("acknowledgement_kept_for_later tag=%s error=%r", tag, exc)
            with self._lock:
                self._unremoved.add(tag)

    def catch_up(self) -> None:
        """Remove what could not be removed before."""
        with self._lock:
            tags, self._unremoved = self._unremoved, set()
        if not tags:
            return
        try:
            self._client.hdel(self._key, *tags)
        except (redis.RedisError, OSError):
            with self._lock:
                self._unremoved |= tags

    def give_back(self, channel: Any, tag: str, *, is_last: bool) -> bool:
        """Return a message to its queue as the original entry, under a fresh delivery tag.

        *is_last*: behind everything that waits there, else before it.  False when it is not in the
        room any more, or when its exchange leads to no queue (then it stays).
        """
        value = self._client.hget(self._key, tag)
        if value is None:
            return False
        payload, exchange, routing_key = loads(bytes_to_str(value))[:3]
        _mark_redelivered(payload)
        queues = channel._lookup(exchange, routing_key)
        if not queues:
            logger.error("no_queue_for_message exchange=%s routing_key=%s", exchange, routing_key)
            return False
        priority = channel._get_message_priority(payload, reverse=False)
        keys = [self._prefix + channel._q_for_pri(queue, priority) for queue in queues]
        moved = self._give_back(
            keys=[self._key, *keys], args=[tag, "LPUSH" if is_last else "RPUSH", dumps(payload)]
        )
        return bool(moved)

    # -- the whole room

    def entries(self, limit: int | None = None) -> list[tuple[str, dict[str, Any], int]]:
        """Return what is in the room: delivery tag, payload, and when it was filed (ms on the
        worker's clock).
        """
        found = []
        for tag, value in self._client.hscan_iter(self._key, count=200):
            payload, _, _, filed_ms = loads(bytes_to_str(value))
            found.append((bytes_to_str(tag), payload, int(filed_ms)))
            if limit is not None and len(found) >= limit:
                break
        return found

    def discard(self, tag: str) -> None:
        """Remove a message whose task is dead-lettered."""
        self._client.hdel(self._key, tag)

    def __len__(self) -> int:
        return int(self._client.hlen(self._key))

    def reconcile(self, channel: Any, held: Iterable[str]) -> int:
        """Give back what the worker does not hold any more, after two sightings; returns how
        many.
        """
        self.catch_up()
        tags = {bytes_to_str(tag) for tag in self._client.hkeys(self._key)}
        strangers = tags - set(held)
        again, self._strangers = strangers & self._strangers, strangers
        return sum(self.give_back(channel, tag, is_last=False) for tag in again)


def _nothing() -> None:
    """Nobody asked to be told."""


def _mark_redelivered(payload: dict[str, Any]) -> None:
    properties = payload.setdefault("properties", {})
    # A fresh tag, so that an acknowledgement of the old delivery can never remove the new one.
    properties["delivery_tag"] = str(uuid.uuid4())
    properties.setdefault("delivery_info", {})["redelivered"] = True


_rooms: dict[str, Room] = {}
_rooms_lock = threading.Lock()


def _after_fork() -> None:
    """Free the locks that another thread of the main process held at the fork."""
    global _rooms_lock
    _rooms_lock = threading.Lock()
    for room in _rooms.values():
        room.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def room_of(name: str, channel: Any) -> Room:
    """Return the room called *name* at the broker of *channel*; one object per process and room."""
    with _rooms_lock:
        room = _rooms.get(name)
        if room is None:
            room = _rooms[name] = Room(name, channel._get_pool(), channel.global_keyprefix)
        return room


def forget_room(name: str) -> None:
    """Drop the object (not the hash) of a room that is done with."""
    with _rooms_lock:
        room = _rooms.pop(name, None)
    if room is not None:
        room._client.connection_pool.disconnect()


class QoS(kombu_redis.QoS):
    """Files deliveries in the worker's room, if the channel has one."""

    @property
    def room(self) -> Room | None:
        """The room, or None for a channel without one (a producer's, say)."""
        name = self.channel.reliable_room
        return room_of(name, self.channel) if name else None

    def append(self, message: Any, delivery_tag: str) -> None:
        """File the message, then count it as delivered."""
        room = self.room
        if room is None:
            super().append(message, delivery_tag)
            return
        delivery = message.delivery_info
        raw = self.channel.raw_item or dumps(message._raw).encode()
        room.file(delivery_tag, raw, delivery["exchange"], delivery["routing_key"])
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Remove the message from the room; never raises because the broker or the channel is
        gone.
        """
        room = self.room
        if room is None:
            super().ack(delivery_tag)
            return
        room.remove(delivery_tag)
        virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the message back behind the others, or remove it."""
        room = self.room
        if room is None:
            super().reject(delivery_tag, requeue)
            return
        if requeue:
            room.give_back(self.channel, delivery_tag, is_last=True)
        else:
            room.remove(delivery_tag)
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """Give back what this channel was delivered and nobody runs, when it is closed.

        After a lost connection, what runs stays in the room: its task goes on and is acknowledged
        there.
        """
        room = self.room if self.channel.reliable_room in _rooms else None
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
            kept: set[str] = set()
            if room.is_leaving:
                room.before_leaving()
            else:
                kept = room.running_tags()
            # The newest first, as each goes in front of the others.
            for tag in reversed([t for t in delivered if t not in kept]):
                room.give_back(self.channel, tag, is_last=False)
        except (redis.RedisError, OSError) as exc:
            logger.warning("deliveries_left_in_room room=%s error=%r", room.name, exc)
        delivered.clear()


class Channel(kombu_redis.Channel):
    """kombu's Redis channel with a room, and without a new client object for every operation."""

    QoS = QoS

    #: The room of the worker that consumes through this channel.
    reliable_room: str | None = None

    #: The message that is being delivered, as it came from the list.
    raw_item: bytes | None = None
    _kept_client: Any = None
    _kept_pool: Any = None

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._kept_client is None or self._kept_pool is not self._pool:
            self._kept_client = super()._create_client()
            self._kept_pool = self._pool
        return self._kept_client

    def _brpop_read(self, **options: Any) -> bool:
        try:
            try:
                popped = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            if not popped:
                raise kombu_redis.Empty()
            name, item = popped
            queue = bytes_to_str(name).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self.raw_item = item if isinstance(item, bytes) else item.encode()
            try:
                message = loads(bytes_to_str(item))
                _check_shape(message)
                # Built once more when it is delivered; here what it raises ends nothing.
                self.Message(message, channel=self)
            except Exception as exc:
                unreadable(queue, self.raw_item, exc)
                return True
            self.connection._deliver(message, queue)
            return True
        finally:
            self.raw_item = None
            self._in_poll = None
            self._flush_brpop_reauth()

    def close(self) -> None:
        """Close the channel; a connection that is already broken does not keep it open."""
        if self._in_poll:
            try:
                self._brpop_read()
            except kombu_redis.Empty:
                pass
            except self.connection_errors:
                logger.debug("channel_closed_with_broken_connection", exc_info=True)
        self._in_poll = None
        super().close()


def _check_shape(message: Any) -> None:
    """Raise ValueError for what kombu would choke on later, in the worker's main loop."""
    properties = message["properties"]
    delivery = properties["delivery_info"]
    is_message = (
        isinstance(properties["delivery_tag"], str)
        and {"exchange", "routing_key"} <= delivery.keys()
        and isinstance(message["body"], str)
        and isinstance(message.get("headers") or {}, dict)
    )
    if not is_message:
        raise ValueError("a list element that is no message of kombu's")


def _log_unreadable(queue: str, raw: bytes, error: Exception) -> None:
    logger.error("unreadable_message queue=%s bytes=%d error=%r", queue, len(raw), error)


#: What is done with a list element that is no message; the worker puts it among the dead letters.
_on_unreadable: Callable[[str, bytes, Exception], None] = _log_unreadable


def unreadable(queue: str, raw: bytes, error: Exception) -> None:
    """Handle a list element that is no message; the worker does not die of it."""
    _on_unreadable(queue, raw, error)


def set_on_unreadable(handler: Callable[[str, bytes, Exception], None]) -> None:
    """Tell what to do with a list element that is no message."""
    global _on_unreadable
    _on_unreadable = handler


class Transport(kombu_redis.Transport):
    """kombu's Redis transport with rooms."""

    Channel = Channel


class SentinelChannel(Channel, kombu_redis.SentinelChannel):
    """The same behind Sentinel."""


class SentinelTransport(kombu_redis.SentinelTransport):
    """kombu's Sentinel transport with rooms."""

    Channel = SentinelChannel
