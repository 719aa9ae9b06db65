"""kombu's Redis transport: the steps of its channel, and what its QoS holds.

All of these are private names of kombu's.  `OpenChannel` and `OpenQoS` give them names that a class
may use and override; the rest are functions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.scheduling import round_robin_cycle
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_reliable.compat.redis import reply, send
from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = [
    "OpenChannel",
    "OpenQoS",
    "PuttingChannel",
    "list_key",
    "new_pool",
    "priority_of",
]

_CHANNEL = "kombu.transport.redis:Channel"
_QOS = "kombu.transport.virtual.base:QoS"
_POLLER = "kombu.transport.redis:MultiChannelPoller"


@relies_on(
    Name(f"{_CHANNEL}._q_for_pri", takes=("queue", "pri"), used_by=f"{_CHANNEL}._put"),
    Name(f"{_CHANNEL}._get_message_priority", takes=("message", "reverse")),
    part=Part.REDIS_BROKER,
)
def list_key(channel: Any, queue: str, priority: int) -> str:
    """Return the key of the list that a queue is in one priority, without the channel's prefix.

    Calls ``Channel._q_for_pri``, and in `priority_of` ``Channel._get_message_priority``: kombu has
    no public function for these names, and how it reads the property is not documented.  Checked on
    kombu 5.7.0.  Without it messages are put into, looked for in and given back to lists that
    nobody consumes.
    """
    key: str = channel._q_for_pri(queue, priority)
    return key


def priority_of(channel: Any, message: Mapping[str, Any]) -> int:
    """Return the priority by which kombu puts a message into one of its queue's lists."""
    priority: int = channel._get_message_priority(message, reverse=False)
    return priority


@relies_on(
    Name(f"{_CHANNEL}._get_pool", takes=("asynchronous",), used_by=f"{_CHANNEL}.pool"),
    part=Part.REDIS_BROKER,
)
def new_pool(channel: Any) -> Any:
    """Return a new pool of connections to a channel's server, shared with nobody.  They repeat no
    command by themselves: what redis-py sends again would pass for what was sent once, and a
    message might be filed twice.  One more of them is allowed than was configured.

    Calls ``Channel._get_pool``: kombu alone knows how its URLs, TLS and Sentinels are reached, and
    its ``pool`` is everybody's.  Checked on kombu 5.7.0.  Without it a worker has no connection of
    its own to acknowledge on, and none that outlives a channel.
    """
    pool = channel._get_pool()
    pool.connection_kwargs.update(
        retry=Retry(NoBackoff(), 0), retry_on_timeout=False, retry_on_error=[]
    )
    pool.max_connections += 1
    return pool


@relies_on(
    Used(_QOS, "_delivered"),
    Used(_QOS, "_dirty"),
    Used(_QOS, "_on_collect"),
    Name(f"{_QOS}._flush"),
    Name(
        f"{_QOS}.restore_unacked_once",
        takes=("stderr",),
        used_by="kombu.transport.virtual.base:Channel.close",
    ),
    part=Part.REDIS_BROKER,
)
class OpenQoS(kombu_redis.QoS):
    """kombu's QoS with names that a subclass may use or override, to keep deliveries elsewhere.

    Calls ``append`` and ``ack`` of kombu's virtual QoS past those of its Redis transport, and reads
    ``_delivered``, ``_dirty``, ``_flush``, ``_on_collect``: kombu's own way is one hash of all
    workers, from which time gives back.  Checked on kombu 5.7.0.  Without it what a worker was
    delivered is in no unacked hash of its own, and is delivered twice, or lost with it.
    """

    def held(self, delivery_tag: str) -> Any:
        """Return the message that was delivered under a tag; None for one that is not held."""
        return self._delivered.get(delivery_tag)

    @property
    def held_tags(self) -> set[str]:
        """The delivery tags of what was delivered and not acknowledged."""
        return set(self._delivered) - set(self._dirty)

    def hold(self, message: Any, delivery_tag: str) -> None:
        """Count a message as delivered, without a write to Redis."""
        virtual.QoS.append(self, message, delivery_tag)

    def forget(self, delivery_tag: str) -> None:
        """Stop to count a message as delivered, without a write to Redis.  If it is still in the
        unacked hash, it is given back later.
        """
        virtual.QoS.ack(self, delivery_tag)

    def restore_last(self) -> dict[str, Any] | None:
        """Return what is held, by tag and in its order, and hold nothing after that; None if that
        was done before.
        """
        self._on_collect.cancel()
        self._flush()
        if self._delivered.restored:
            return None
        self._delivered.restored = True
        found = dict(self._delivered)
        self._delivered.clear()
        return found


class _Ear:
    """Stands for a channel at kombu's poller, for one more connection of it."""

    def __init__(self, handlers: dict[str, Callable[[], Any]]) -> None:
        self.handlers = handlers
        self.qos = self

    def can_consume(self) -> bool:
        """Whether what comes is read: always."""
        return True

    def _poll_error(self, name: str) -> None:
        self.handlers[name]()


@relies_on(
    Name(f"{_CHANNEL}._connparams", takes=("asynchronous",), used_by=f"{_CHANNEL}._get_pool"),
    Name(
        f"{_CHANNEL}._create_client",
        takes=("asynchronous",),
        used_by=f"{_CHANNEL}.conn_or_acquire",
    ),
    Name(
        f"{_CHANNEL}._brpop_start",
        takes=("timeout",),
        used_by=f"{_POLLER}._register_BRPOP",
    ),
    Name(f"{_CHANNEL}._brpop_read", used_by=f"{_CHANNEL}.close"),
    Name(f"{_CHANNEL}._flush_brpop_reauth", used_by=f"{_CHANNEL}._brpop_read"),
    Used(_CHANNEL, "_in_poll"),
    Used(_CHANNEL, "_brpop_sent_at"),
    Used(_CHANNEL, "_queue_cycle"),
    Used(by=f"{_POLLER}.on_readable", name="handlers"),
    Used(by=f"{_POLLER}.handle_event", name="_poll_error"),
    Name(f"{_POLLER}._register", takes=("channel", "client", "type")),
    Name(f"{_POLLER}._client_registered", takes=("channel", "client", "cmd")),
    part=Part.REDIS_BROKER,
)
class OpenChannel(kombu_redis.Channel):
    """kombu's Redis channel, whose steps have names that a class of ours may use and override.  It
    has a new client for the event loop, and one for all else.  A subclass says in
    `connection_arguments` what becomes of kombu's arguments of new connections.

    Overrides ``_connparams``, ``_create_client``, ``_brpop_start``, ``_brpop_read``, reads what
    they keep, and has the event loop watch more connections by ``_register`` of its poller: kombu
    has no other place at which to wait by BLMOVE.  Checked on kombu 5.7.0.  Without it a worker
    waits by BRPOP, as Celery alone does, and loses a message if it dies before that is filed.
    """

    _kept_client: Any = None
    _kept_pool: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        #: What hears of more connections, by their names.
        self._ears: dict[str, _Ear] = {}
        super().__init__(*args, **kwargs)

    # -- what kombu calls

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        arguments: dict[str, Any] = self.connection_arguments(super()._connparams(asynchronous))
        return arguments

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous)
        if self._kept_client is None or self._kept_pool is not self.pool:
            self._kept_client = super()._create_client(asynchronous)
            self._kept_pool = self.pool
        return self._kept_client

    def _brpop_start(self, timeout: float | None = None) -> None:
        self.begin_to_wait(timeout)

    def _brpop_read(self, **options: Any) -> bool:
        return self.end_of_wait(**options)

    # -- what may be overridden

    def begin_to_wait(self, timeout: float | None) -> None:
        """Ask for a message, and wait for it (BRPOP)."""
        super()._brpop_start(timeout)

    def end_of_wait(self, **options: Any) -> bool:
        """Deliver the message that came. Raises kombu's Empty if none did."""
        return bool(super()._brpop_read(**options))

    # -- what may be used

    @property
    def is_waiting(self) -> bool:
        """Whether a message was asked for and has not come."""
        return bool(self._in_poll)

    def new_client(self) -> Any:
        """Return another client for the event loop."""
        return super()._create_client(True)

    def watch(self, client: Any, name: str, hear: Callable[[], Any]) -> None:
        """Let the event loop call *hear* when there is something to read on a client's connection,
        which this opens if need be; also while nothing may be delivered.
        """
        poller = self.connection.cycle
        ear = self._ears.setdefault(name, _Ear({name: hear}))
        if not poller._client_registered(ear, client, name):
            poller._register(ear, client, name)

    def wait_by(self, commands: Sequence[Sequence[Any]]) -> None:
        """Wait by these commands, the first of which waits, in place of BRPOP."""
        send(self.client.connection, commands)
        # From now on it reads the answer, also as it closes.
        self._in_poll = self.client.connection
        # By this kombu tells that the connection hangs.
        self._brpop_sent_at = time.monotonic()

    def read_replies(self, count: int) -> list[Any]:
        """Return what they were answered; an error reply as its exception.  Raises redis-py's
        errors, with the connection closed.
        """
        connection = self.client.connection
        try:
            replies = [reply(connection) for _ in range(count)]
        except BaseException:
            self.read_no_more()
            raise
        self.wait_no_more()
        self._flush_brpop_reauth()
        return replies

    def read_no_more(self) -> None:
        """Close the connection by which was waited, whose replies nobody reads any more."""
        connection = self.client.connection
        if connection is not None:
            connection.disconnect()
        self.wait_no_more()

    def wait_no_more(self) -> None:
        """Note that nothing is waited for."""
        self._in_poll = None

    def queues_in_turn(self) -> list[str]:
        """Return the consumed queues in the order in which they are asked now."""
        queues: list[str] = self._queue_cycle.consume(len(self.active_queues))
        return queues

    def leave_out(self, queues: frozenset[str]) -> None:
        """Ask all consumed queues but these, and keep whose turn it is."""
        asked = [one for one in self._queue_cycle.items if one not in queues]
        more = [one for one in self.active_queues if one not in queues and one not in asked]
        self._queue_cycle.update([*asked, *more])

    def has_had_its_turn(self, queue: str) -> None:
        """Note that a queue has delivered."""
        self._queue_cycle.rotate(queue)

    @property
    def takes_turns(self) -> bool:
        """Whether queues of one priority take turns. Otherwise the first one that has a message
        delivers.
        """
        return type(self._queue_cycle) is round_robin_cycle


@relies_on(
    Name(f"{_CHANNEL}._put", takes=("queue", "message"), used_by=f"{_CHANNEL}.basic_publish"),
    Name(
        f"{_CHANNEL}.encode_body",
        takes=("body", "encoding"),
        used_by=f"{_CHANNEL}._inplace_augment_message",
    ),
    part=Part.REDIS_PRODUCER,
)
class PuttingChannel:
    """Mixed into a Redis channel.  A subclass may put a message into its queue's list: then its
    `has_put` returns True.

    Overrides ``Channel._put``, the last of kombu's steps: before it there is no message yet, after
    it there is one without a record.  Checked on kombu 5.7.0.  Without it tasks are sent that the
    ledger knows nothing of.
    """

    def _put(self, queue: str, message: dict[str, Any], **kwargs: Any) -> None:
        if not self.has_put(queue, message):  # type: ignore[attr-defined]
            super()._put(queue, message, **kwargs)  # type: ignore[misc]
