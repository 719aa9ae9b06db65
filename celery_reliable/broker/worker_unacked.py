"""A worker's own unacked hash: it takes messages into it, and removes what is acknowledged."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from itertools import count, islice
from typing import Any

import redis
from kombu.utils.encoding import bytes_to_str

from celery_reliable.broker.deliveries import Delivery, Queues, Taken, WorkerHooks
from celery_reliable.broker.unacked import Unacked, quoted, script, unquoted
from celery_reliable.compat.kombu import new_pool
from celery_reliable.log import logger
from celery_reliable.redis_io import Line, left_out_when_full

__all__ = [
    "WorkerUnacked",
]


#: So many acknowledged messages are removed by the step that takes others.
_REMOVED_AT_ONCE = 500

#: So many messages go back to their queues in one step.
_REQUEUED_AT_ONCE = 500

#: For so long a blocking pop may be on its way to the server.
_POP_SECONDS = 0.5


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
        #: When a message that was popped, and whose delivery was lost with a connection, may be
        #: looked for (monotonic seconds); None when no connection was lost.
        self.lost_pop_at: float | None = None
        #: For `take`, which the main loop asks with every message.
        self._line = Line(pool)
        self._take, self._requeue, self._put_back = map(script, ("take", "requeue", "put_back"))
        #: What the tags of all that it takes begin with, and the numbers of its takings.
        self._own, self._numbers = str(uuid.uuid4()), count(1)
        #: Tags of messages that are acknowledged and not yet removed.
        self._unremoved: set[str] = set()
        #: Messages that were popped and perhaps not filed: the key of the list that each came from,
        #: and what it was to become.
        self._unfiled: list[tuple[str, Delivery]] = []
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

    def note_lost_pop(self, timeout_seconds: float) -> None:
        """Note that a connection was lost before the answer to a blocking pop of at most so many
        seconds: a message that the pop took is in no queue and in no unacked hash.
        """
        self.lost_pop_at = time.monotonic() + timeout_seconds + _POP_SECONDS

    def take(
        self,
        queues: Sequence[str],
        lists: Sequence[str],
        least: int,
        popped: tuple[str, str, bytes] | None = None,
        *,
        most: int = 0,
        plenty: int = 0,
        in_turn: bool = True,
    ) -> Taken:
        """File *popped* (key of the list, queue and message), if given; pop and file up to *least*
        more messages, or up to *most* where at least *plenty* remain in the queues.

        *lists*: the keys of all *queues* for the first priority, then for the next, and so on.
        *in_turn*: queues of one priority take turns; else the first is emptied first.

        Acknowledged messages are removed in the same step.  Raises redis-py's errors; then
        *popped* is kept, and returned to its list when the broker is back.
        """
        prefix, holder = f"{self._own}-{next(self._numbers)}:", self.worker.holder()
        now_ms = int(time.time() * 1000)
        acknowledged = list(islice(self._unremoved, _REMOVED_AT_ONCE))
        args: list[str | bytes | int] = [least, max(least, most), plenty, prefix, now_ms]
        # The script's loop advances by so many lists: 0 would never end.
        turns = max(len(queues), 1) if in_turn else 1
        args += [len(queues), turns, len(acknowledged), self.name if self._namespace else ""]
        args += [*map(quoted, queues), *acknowledged]
        found = []
        if popped is not None:
            found.append(Delivery(f"{prefix}0", popped[1], popped[2], holder))
            args += [quoted(popped[1]), popped[2]]
        keys = [self.key, self.list_key(self._namespace), *(self.prefix + k for k in lists)]
        try:
            reply = self._ask_to_take(keys, args)
        except (redis.RedisError, OSError):
            if popped is not None:
                self.put_back_later(self.prefix + popped[0], found[0])
            raise
        with self._lock:
            self._unremoved.difference_update(acknowledged)
        pairs = zip(reply[1::2], reply[2::2], strict=True)
        found += [
            Delivery(f"{prefix}{n}", unquoted(bytes_to_str(queue)), raw, holder)
            for n, (queue, raw) in enumerate(pairs, start=1)
        ]
        return Taken(found, int(reply[0]))

    def _ask_to_take(self, keys: Sequence[str], args: Sequence[str | bytes | int]) -> Any:
        """Return what `take` answers."""
        call = (len(keys), *keys, *args)
        (reply,) = self._line.ask(("EVALSHA", self._take.sha, *call))
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = self._line.ask(("EVAL", self._take.text, *call))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def put_back_later(self, key: str, delivery: Delivery) -> None:
        """Keep a message that came from the list *key*: it goes back there when the broker is
        there (`catch_up`), unless it is in the unacked hash after all.
        """
        with self._lock:
            self._unfiled.append((key, delivery))

    def _put_back_unfiled(self) -> None:
        """Return each to its list that is not in the unacked hash after all, the newest first.

        Raises redis-py's errors; then the others are kept.
        """
        while True:
            with self._lock:
                if not self._unfiled:
                    return
                key, delivery = self._unfiled.pop()
            try:
                self.run(self._put_back, [self.key, key], [delivery.tag, delivery.raw])
            except BaseException:
                self.put_back_later(key, delivery)
                raise

    def queues(self, names: Sequence[str], lists: Sequence[str], cold: Sequence[str]) -> Queues:
        """Return where a process of this worker takes messages by itself."""
        return Queues(
            self.key,
            self.list_key(self._namespace),
            self.name,
            tuple(map(quoted, names)),
            tuple(self.prefix + one for one in lists),
            tuple(cold),
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

    def requeue(self, messages: Sequence[tuple[str, str]]) -> list[bool]:
        """Move messages that nobody has begun back to the front of their queues, as they were
        there; return of which the worker has nothing any more.

        *messages*: tag and list (its key without the prefix) of each, the oldest first.  False for
        what was not in the hash any more.  Where the broker does not answer, nobody knows: then the
        worker is to hold none of them, and `reconcile` gives back what has stayed.
        """
        moved: list[bool] = []
        try:
            for end in range(len(messages), 0, -_REQUEUED_AT_ONCE):
                newest_first = messages[max(0, end - _REQUEUED_AT_ONCE) : end][::-1]
                keys = [self.key, *(self.prefix + one for _, one in newest_first)]
                moved += map(bool, self.run(self._requeue, keys, [tag for tag, _ in newest_first]))
        except (redis.RedisError, OSError) as exc:
            logger.warning("deliveries_not_given_back unacked=%s error=%s", self.name, exc)
            moved += [True] * (len(messages) - len(moved))
        return moved[::-1]

    def catch_up(self) -> None:
        """Remove what is acknowledged, and return what was popped and not filed to its list; what
        fails is tried again by the next call.
        """
        if not self._unremoved and not self._unfiled:
            return
        with self._lock:
            tags, self._unremoved = self._unremoved, set()
        try:
            if tags:
                self.client.hdel(self.key, *tags)
                tags = set()
            self._put_back_unfiled()
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
