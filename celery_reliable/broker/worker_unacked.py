"""A worker's own unacked hash: it takes messages into it, and removes what is acknowledged."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Any

import redis

from celery_reliable import clock
from celery_reliable.broker.deliveries import Delivery, Queues, WorkerHooks
from celery_reliable.broker.unacked import Unacked, quoted, unquoted
from celery_reliable.compat.kombu import new_pool
from celery_reliable.log import logger
from celery_reliable.redis_io import Line, left_out_when_full

__all__ = [
    "WorkerUnacked",
]


#: So many acknowledged messages are removed by the step that takes others.
_REMOVED_AT_ONCE = 500


#: Of more takings whose reply was lost the claims count as lost.
_MOST_GIVEN_UP = 500


class WorkerUnacked(Unacked):
    """The unacked hash of this process's worker.

    It has its own connections, as an acknowledgement may come long after the channel that delivered
    the message was closed.  What cannot be done while the broker is away is done later.
    """

    def __init__(self, name: str, pool: redis.ConnectionPool, prefix: str) -> None:
        super().__init__(name, pool, prefix)
        self.worker = WorkerHooks()
        #: The worker shuts down, so that it keeps nothing.
        self.is_leaving = False
        #: For `take`, which the main loop asks with every message.
        self._line = Line(pool)
        #: What the tags of all that it takes begin with, and the numbers of its takings.
        self._own, self._numbers = secrets.token_hex(8), count(1)
        #: Tags under which something may be claimed that nobody begins: the worker has not heard of
        #: it, or has lost the connection by which it was delivered.
        self.given_up: deque[str] = deque(maxlen=_MOST_GIVEN_UP)
        #: Tags of messages that are acknowledged and not yet removed.
        self._unremoved: set[str] = set()
        #: Tags in the hash that the worker did not hold when `reconcile` looked last.
        self._strangers: set[str] = set()
        self._lock = threading.Lock()
        self._namespace = ""

    @classmethod
    def opened(cls, name: str, channel: Any) -> WorkerUnacked:
        """Return the unacked hash called *name*, at the broker of *channel*."""
        return cls(name, new_pool(channel), channel.global_keyprefix)

    def open(self, namespace: str) -> None:
        """Put the hash on the namespace's list of unacked hashes.

        Each `take` puts it there again: a worker that was forgotten is taken off without hearing of
        it, and the broker may have lost the list, or be full now.
        """
        self._namespace = namespace
        with left_out_when_full():
            self.client.sadd(self.list_key(namespace), self.name)

    def take(self, places: Sequence[Queues]) -> list[Delivery]:
        """Pop and file a message from each of *places*, in one round trip; return what was there.
        Acknowledged messages are removed with the first.  Raises redis-py's errors.
        """
        holder, asked_at, now_ms = self.worker.holder(), clock.now(), int(time.time() * 1000)
        acknowledged = list(islice(self._unremoved, _REMOVED_AT_ONCE))
        tags = [f"{self._own}.{next(self._numbers)}" for _ in places]
        steps = [
            self.worker.steps(one).step(tag, done=() if n else acknowledged, filed_ms=now_ms)
            for n, (one, tag) in enumerate(zip(places, tags, strict=True))
        ]
        try:
            replies = self._line.ask(*(("EVALSHA", *step.call) for step in steps))
            if isinstance(replies[0], redis.exceptions.NoScriptError):
                replies = self._line.ask(*(("EVAL", s.code.text, *s.call[1:]) for s in steps))
            for reply in replies:
                if isinstance(reply, Exception):
                    raise reply
        except BaseException:
            # What was taken all the same is filed, and given back as nobody holds it.
            self.given_up.extend(tags)
            raise
        found = []
        for tag, step, reply in zip(tags, steps, replies, strict=True):
            step.hear(reply)
            task = step.answer
            if task.message is not None:
                claim = task.claim(holder, tag, asked_at)
                delivery = Delivery(tag, unquoted(task.queue), task.message, holder, claim)
                found.append(delivery)
        with self._lock:
            self._unremoved.difference_update(acknowledged)
        return found

    def queues(self, names: Sequence[str], lists: Sequence[str]) -> Queues:
        """Return where this worker takes messages.  *lists*: whole keys, one for each of *names*,
        then another for each, and so on.
        """
        return Queues(
            self.key,
            self.list_key(self._namespace),
            self.name if self._namespace else "",
            tuple(map(quoted, names)),
            tuple(lists),
            tuple(self.worker.cold()),
        )

    def remove(self, tag: str) -> None:
        """Remove an acknowledged message, now or when the broker is back."""
        try:
            self.client.hdel(self.key, tag)
        except (redis.RedisError, OSError) as exc:
            logger.warning("acknowledgement_kept_for_later tag=%s error=%s", tag, exc)
            self.remove_soon(tag)

    def remove_soon(self, tag: str) -> None:
        """Remove an acknowledged message with the next `take`, or `catch_up`."""
        with self._lock:
            self._unremoved.add(tag)

    def keep(self, tag: str, *, is_begun: bool) -> bool:
        """Whether a message is still in the hash.  *is_begun*: remove it, too, as its task begins.

        False also when the broker does not answer; then the message stays.
        """
        try:
            if not self.client.hexists(self.key, tag):
                return False
        except (redis.RedisError, OSError) as exc:
            logger.warning("delivery_not_seen tag=%s error=%s", tag, exc)
            return False
        try:
            return not is_begun or bool(self.client.hdel(self.key, tag))
        except (redis.RedisError, OSError) as exc:
            # It was there.  If it is removed now, nobody else can have it.
            logger.warning("removal_unknown tag=%s error=%s", tag, exc)
            return True

    def catch_up(self) -> None:
        """Remove what is acknowledged; what fails is tried again by the next call."""
        if not self._unremoved:
            return
        with self._lock:
            tags, self._unremoved = self._unremoved, set()
        try:
            self.client.hdel(self.key, *tags)
        except (redis.RedisError, OSError):
            with self._lock:
                self._unremoved |= tags

    def reconcile(self, channel: Any, held: Iterable[str]) -> int:
        """Give back messages that the worker does not hold, and did not hold at the last call
        either; return how many.  *held*: the delivery tags of what it holds.

        Once is not enough: a message is filed before the worker holds it.
        """
        self.catch_up()
        if self._namespace:
            # The broker may have lost the list of hashes.
            self.open(self._namespace)
        taken = self.worker.is_taken_by_pool
        strangers = {tag for tag in self.tags() - set(held) if not taken(tag)}
        again, self._strangers = strangers & self._strangers, strangers
        return sum(self.give_back(channel, tag, is_last=False) for tag in again)
