"""How a worker's channel waits for a message that is filed as it leaves its queue (`inbox`)."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import redis
from kombu.transport import redis as kombu_redis

from celery_reliable.broker.consumers import ConsumingChannel
from celery_reliable.broker.deliveries import Arrival
from celery_reliable.compat.kombu import list_key
from celery_reliable.compat.redis import has_something_to_read
from celery_reliable.log import logger

__all__ = [
    "INBOX_PREFIX",
    "NOTHING_ELSE",
    "N_FIRST",
    "N_REST",
    "WAIT_SECONDS",
    "Arriving",
    "Inbox",
    "bring_all_back",
    "bring_back",
]

#: What the key of an inbox begins with; then comes that of its list.
INBOX_PREFIX = "celery-reliable.inbox:"
#: So many replies are those of the wait and of the call that files; so many come behind them.
N_FIRST, N_REST = 2, 3
#: What comes behind where nothing was left in the inbox and nothing waits.
NOTHING_ELSE = (None, 0, 0)


@dataclass(frozen=True)
class Inbox:
    """Of one list: all workers that wait for a queue share its inbox.  Keys are whole.

    BRPOP hands a message to a connection: a worker that dies before it has filed it leaves it
    nowhere.  BLMOVE moves the message into the inbox instead.  The call that files it is sent
    along, and Redis runs it even if the client is gone by then.  So a message is in its queue, in
    the inbox, or filed.  What a server that died has left in the inbox is taken by the next wait.
    """

    list_key: str
    key: str
    #: The lists of the queue's other priorities, which nobody waits for here.
    others: Sequence[str] = ()

    def commands(self, call: Sequence[Any], timeout: float) -> list[tuple[Any, ...]]:
        """Return what is sent to wait for a message for so many seconds (0: for ever).

        *call*: the arguments of EVALSHA, of a script that takes from the inbox.
        """
        return [
            ("BLMOVE", self.list_key, self.key, "RIGHT", "LEFT", timeout),
            ("EVALSHA", *call),
            # What the script did not take goes back to where it came from.
            ("LMOVE", self.key, self.list_key, "RIGHT", "RIGHT"),
            ("LLEN", self.list_key),
            ("EXISTS", *(self.others or (self.key,))),
        ]


def bring_back(client: redis.Redis, key: str | bytes, list_key: str | bytes) -> int:
    """Return to its list what is left in an inbox, and how many that was."""
    n = 0
    while client.lmove(key, list_key, "RIGHT", "RIGHT"):  # type: ignore[arg-type]
        n += 1
    return n


def bring_all_back(client: redis.Redis, prefix: str, lists: Iterable[str]) -> int:
    """Do the same for all inboxes of a server, and return how many messages that were.

    *prefix*: of the broker's keys.  It walks through all keys, so it is for who leaves.  For a user
    who may not do that it looks at the inboxes of *lists* only.
    """
    begins = f"{prefix}{INBOX_PREFIX}".encode()
    try:
        pattern = re.sub(rb"([\\*?\[\]])", rb"\\\1", begins) + b"*"
        keys = list(client.scan_iter(match=pattern, count=1000))
    except redis.exceptions.NoPermissionError:
        keys = [begins + one.encode() for one in lists]
    return sum(bring_back(client, key, key.removeprefix(begins)) for key in keys)


#: For so long a wait lasts, whatever kombu's are told to.  Until it is over the server may file for
#: a worker that is gone, and nobody looks at the lists of other priorities.
WAIT_SECONDS = 1
#: Who stops waits so much longer than that for the server's answer: its clock may be set back while
#: it counts the seconds of a wait.
_LATE_SECONDS = 5


class Arriving(ConsumingChannel):
    """A channel that waits for a message by BLMOVE.

    BLMOVE waits for one list.  So this is for a worker that consumes one queue, and for the list of
    its first priority.  The others are looked at once for each wait; as soon as a message is seen
    there, the worker waits for all of them as kombu does, for as long as it lives.
    """

    #: A blocking pop was sent whose answer has not been read.
    _awaits_pop = False
    #: What was sent and not answered: how the worker sees it, and where it waits.
    _awaited: tuple[Any, Inbox] | None = None
    _can_bring_back = True
    #: A message is delivered, and what was answered behind it is not read yet.
    _has_unread = False

    def await_arrival(self) -> bool:
        """Begin to wait for a message that is filed as it comes; False where that cannot be."""
        unacked = self.qos.unacked
        arrivals = unacked.worker.arrivals if unacked is not None else None
        queues = self.queues_in_turn()
        if arrivals is None or len(queues) != 1 or not arrivals.may_wait or _has_priorities(self):
            return False
        inbox = self._inbox_of(unacked, queues[0])
        inbox_key = inbox.key.removeprefix(unacked.prefix)
        awaited = arrivals.next(unacked.queues(queues, [inbox_key], arrivals.left_out()))
        if awaited is None:
            return False
        self._awaited = awaited, inbox
        try:
            self.wait_by(inbox.commands(awaited.step.call, WAIT_SECONDS))
        except BaseException:
            self.note_lost_wait()
            raise
        return True

    def _inbox_of(self, unacked: Any, queue: str) -> Inbox:
        lists = [unacked.prefix + list_key(self, queue, step) for step in self.priority_steps]
        return Inbox(lists[0], unacked.prefix + INBOX_PREFIX + lists[0], lists[1:])

    def bring_back(self) -> None:
        """Return to their queues what has been left in their inboxes: nobody may wait there any
        more.  Raises redis-py's errors where the connection fails.
        """
        unacked = self.qos.unacked
        if unacked is None or not self._can_bring_back:
            return
        try:
            for inbox in [self._inbox_of(unacked, queue) for queue in self.active_queues]:
                bring_back(unacked.client, inbox.key, inbox.list_key)
        except redis.ResponseError:
            # It is not allowed, or not known: then nobody waits there either.
            self._can_bring_back = False

    def note_lost_wait(self) -> None:
        """Tell the worker of a wait whose connection is gone: it may have taken a message.

        Until it times out, the server may do that for a connection whose end it has not seen.
        """
        unacked = self.reliable_unacked
        if self._awaits_pop and unacked is not None:
            unacked.note_lost_pop(float(self.brpop_timeout or 0))
        if self._awaited is not None:
            self._awaited[0].give_up()
        self._awaits_pop, self._awaited = False, None

    def end_of_arrival(self) -> bool:
        """Deliver the message that came.  Raises kombu's Empty if none did."""
        assert self._awaited is not None
        awaited, inbox = self._awaited
        arrival, was_handed = None, None
        try:
            waited, filed = self.read_replies(N_FIRST, more=True)
            self._has_unread = True
            if not isinstance(filed, Exception):
                self._awaited = None
                arrival = awaited.hear(filed, self._may_begin)
            if arrival is not None:
                # Its process begins while the rest is read.
                was_handed = self._hand_on(arrival)
            rest = self.read_replies(N_REST) if self._has_unread else NOTHING_ELSE
        except BaseException:
            self.read_no_more()
            self.note_lost_wait()
            raise
        finally:
            self._has_unread = False
        self._awaited = None
        # The server may not know the script that files the message.
        is_unknown = isinstance(filed, redis.exceptions.NoScriptError)
        told = [waited, *rest] if is_unknown else [waited, filed, *rest]
        refusals = [one for one in told if isinstance(one, redis.ResponseError)]
        n_waiting, n_others = (0 if isinstance(one, Exception) else int(one) for one in rest[1:])
        n_others = n_others if inbox.others else 0
        self._n_waiting, self._looked_at = n_waiting + n_others, time.monotonic()
        arrivals = self.qos.unacked.worker.arrivals
        if n_others:
            arrivals.note_priorities()
        if refusals:
            arrivals.refuse(refusals[0])
        if isinstance(filed, Exception):
            awaited.fail(is_unknown=is_unknown)
        if arrival is None:
            raise kombu_redis.Empty()
        if was_handed is None:
            self._n_waiting += 1
        else:
            self._lets_begin = was_handed and not self._n_waiting
        return True

    def end_paused_arrival(self) -> None:
        """Deal with what has come, if kombu does not read it: it pauses while nothing more may be
        delivered.
        """
        if (
            self._awaited is not None
            and not self.qos.can_consume()
            and has_something_to_read(self.client.connection)
        ):
            with suppress(kombu_redis.Empty, *self.connection_errors):
                self.end_of_arrival()

    def _may_begin(self, queue: str) -> bool:
        """Whether what is in a queue may be delivered, to begin at once."""
        return bool(self.is_consumed(queue) and self.qos.can_consume())

    def _hand_on(self, arrival: Arrival) -> bool | None:
        """Deliver a message; whether a process begins at once.  None: it is in its queue again."""
        delivery = arrival.delivery
        if not self.qos.can_consume():
            place = list_key(self, delivery.queue, self.priority_steps[0])
            self.qos.unacked.requeue([(delivery.tag, place)])
            return None
        self.has_had_its_turn(delivery.queue)
        try:
            self.deliver_one(delivery, arrival.payload, arrival.early)
        finally:
            if arrival.early is not None:
                arrival.early.is_under_way = False
        return bool(self.qos.unacked.worker.hand_over())

    def end_arrivals(self) -> None:
        """Take nothing more, and give back what comes last, where messages are filed as they come:
        a worker that leaves reads nothing while its tasks run to their end.
        """
        self._is_closing = True
        if self._awaited is not None:
            self.end_waiting()

    def end_waiting(self) -> None:
        """Read what has come, and wait for nothing more."""
        may_wait = max(WAIT_SECONDS, self.brpop_timeout or 0) + _LATE_SECONDS
        if self._has_unread:
            # Somebody closes the channel while a message is delivered.
            self._has_unread = False
            self.read_no_more()
        elif self.is_waiting and not has_something_to_read(self.client.connection, may_wait):
            self.read_no_more()
        elif self.is_waiting:
            try:
                self.end_of_wait()
            except kombu_redis.Empty:
                pass
            except self.connection_errors as exc:
                logger.debug("broken_channel_closed error=%s", exc)
        self.wait_no_more()
        self.note_lost_wait()


def _has_priorities(channel: Any) -> bool:
    """Whether tasks have priorities, as far as the transport's options tell."""
    steps = list(channel.priority_steps)
    is_default = steps == list(kombu_redis.PRIORITY_STEPS) and channel.takes_turns
    return len(steps) > 1 and not is_default
