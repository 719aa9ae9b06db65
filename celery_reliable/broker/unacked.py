"""What a worker was delivered and has not acknowledged, in an unacked hash of its own.

Nothing is redelivered from an unacked hash because of time; when its worker is declared dead, the
sweeper gives back what is in it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any

import redis
from kombu.utils.encoding import bytes_to_str

from celery_reliable import events
from celery_reliable.broker.deliveries import Beside, Delivery, Taken
from celery_reliable.broker.entries import Entry, entry_of, quoted, unquoted
from celery_reliable.compat.kombu import list_key, new_pool, priority_of
from celery_reliable.compat.redis import repeat_nothing
from celery_reliable.redis_io import Line

__all__ = [
    "UNACKED_LIST_PREFIX",
    "UNACKED_PREFIX",
    "Unacked",
    "opened_unacked",
    "unacked_names",
    "unacked_of",
]

#: What the names of unacked hashes begin with; kombu's shared hash is called "unacked".
UNACKED_PREFIX = "unacked:"

#: Messages of an unacked hash are read at a time that have so many bytes together, unless one has
#: more, and so many.
_READ_BYTES = 4 * 1024 * 1024
_READ_AT_ONCE = 500

#: How many acknowledged messages are removed in one step with what is taken.
_REMOVED_AT_ONCE = 500

#: How long a command may be on its way.
_POP_SECONDS = 0.5

#: The names of a namespace's unacked hashes in which something may be, so that nobody searches the
#: keys.
UNACKED_LIST_PREFIX = "celery-reliable.rooms:"


class Unacked:
    """One worker's own unacked hash at the broker.

    It has its own connections, as an acknowledgement may come long after the channel that delivered
    the message was closed.  What cannot be removed while the broker is away is removed later.
    """

    def __init__(self, name: str, pool: redis.ConnectionPool, prefix: str) -> None:
        self.name = name
        self._key = prefix + name
        self._prefix = prefix
        self._client = redis.Redis(connection_pool=pool)
        #: For what the main loop asks with every message.
        self._line = Line(pool)
        self._take = _Code(_script("take"))
        self._give_back = _Code(_script("give_back"))
        self._put_back = _Code(_script("put_back"))
        self._strike_off = _Code(_script("strike_off"))
        self._unremoved: set[str] = set()
        self._unfiled: list[tuple[str, Delivery]] = []
        self._lock = threading.Lock()
        self._strangers: set[str] = set()
        #: Tells under which lease the worker takes messages; the worker sets it.
        self.holder: Callable[[], str] = str
        self._namespace = ""
        #: Tells which delivery tags the worker still runs; the worker sets it.
        self.running_tags: Callable[[], set[str]] = set
        #: Tells how many tasks the worker could begin at once; the worker sets it, if it has an
        #: event loop.
        self.idle_slots: Callable[[], int] | None = None
        #: Returns the claim that is made as a message is filed which can begin at once, if any; the
        #: worker sets it.
        self.early: Callable[[Any], Any] = _nothing
        #: Notes that a message that came back from a dead worker is about to be opened; False when
        #: it is to be dropped.  The worker sets it.
        self.opening: Callable[[Delivery, dict[str, Any]], bool] = _may_be_opened
        #: Called when it was opened.  The worker sets it.
        self.opened: Callable[[], None] = _nothing
        #: Called when all that was taken is delivered, as more may be taken then; the worker sets
        #: it.
        self.after_delivery: Callable[[], None] = _nothing
        #: Called before everything is given back at a shutdown; the worker sets it.
        self.before_leaving: Callable[[], None] = _nothing
        #: Keeps what is no message of kombu's for an operator; False when it cannot now.  The
        #: worker sets it.
        self.on_unreadable: Callable[[Delivery, Exception], bool] = _keep
        self.is_leaving = False
        #: When somebody may ask what was popped and never heard of (monotonic), if anything may be.
        self.lost_pop_at: float | None = None

    def after_fork(self) -> None:
        """Free the lock that another thread may have held at the fork."""
        self._lock = threading.Lock()

    def open(self, namespace: str) -> None:
        """Put the unacked hash on the list of the namespace's unacked hashes.

        Whatever files something puts it there again: whoever was forgotten may be off the list, and
        the broker may have lost it.
        """
        self._namespace = namespace
        self._client.sadd(self._list_key(namespace), self.name)

    def _list_key(self, namespace: str) -> str:
        return f"{self._prefix}{UNACKED_LIST_PREFIX}{namespace}"

    def strike_off(self, namespace: str) -> None:
        """Strike the unacked hash off the list of the namespace's unacked hashes, if nothing is in
        it.
        """
        self._run(self._strike_off, [self._key, self._list_key(namespace)], [self.name])

    def note_lost_pop(self, timeout_seconds: float) -> None:
        """Note that a connection was lost whose blocking pop, of at most so long, was not answered:
        what it took is nowhere.
        """
        self.lost_pop_at = time.monotonic() + timeout_seconds + _POP_SECONDS

    # -- deliveries

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
        beside: Beside | None = None,
    ) -> Taken:
        """File *popped* (list, queue and message), if given, and pop and file up to *least* more,
        or up to *most* where *plenty* remain.

        *lists* are the keys of all *queues* for the first priority, then for the next, and so on.
        *in_turn*: queues of one priority take turns; else the first is emptied first.
        What is acknowledged is removed in the same step.  *beside* goes to the server in the same
        round trip, and may be executed or not whatever becomes of the rest.  Raises redis-py's
        errors; then what was given is kept, and returned to its list when the broker is back.
        """
        prefix, holder = f"{uuid.uuid4()}:", self.holder()
        now_ms = int(time.time() * 1000)
        acknowledged = list(islice(self._unremoved, _REMOVED_AT_ONCE))
        args: list[str | bytes | int] = [least, max(least, most), plenty, prefix, now_ms]
        # Without a queue there is no list, and a step of 0 would never end.
        turns = max(len(queues), 1) if in_turn else 1
        args += [len(queues), turns, len(acknowledged), self.name if self._namespace else ""]
        args += [*map(quoted, queues), *acknowledged]
        found = []
        if popped is not None:
            found.append(Delivery(f"{prefix}0", popped[1], popped[2], holder))
            args += [quoted(popped[1]), popped[2]]
        listed = self._list_key(self._namespace)
        keys = [self._key, listed, *(self._prefix + k for k in lists)]
        try:
            reply = self._taken(keys, args, beside)
        except (redis.RedisError, OSError):
            if popped is not None:
                with self._lock:
                    self._unfiled.append((self._prefix + popped[0], found[0]))
            raise
        with self._lock:
            self._unremoved.difference_update(acknowledged)
        pairs = zip(reply[1::2], reply[2::2], strict=True)
        found += [
            Delivery(f"{prefix}{n}", unquoted(bytes_to_str(queue)), raw, holder)
            for n, (queue, raw) in enumerate(pairs, start=1)
        ]
        return Taken(found, int(reply[0]))

    def _taken(
        self, keys: Sequence[str], args: Sequence[str | bytes | int], beside: Beside | None
    ) -> Any:
        call = (len(keys), *keys, *args)
        take = ("EVALSHA", self._take.sha, *call)
        if beside is None:
            (reply,) = self._line.ask(take)
        else:
            try:
                reply, answer = self._line.ask(take, ("EVALSHA", *beside.call))
                beside.hear(answer)
            except (redis.ConnectionError, redis.TimeoutError, OSError):
                # Whoever wants the other can ask for it again, and has the patience.
                (reply,) = self._line.ask(take)
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = self._line.ask(("EVAL", self._take.text, *call))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def remove(self, tag: str) -> None:
        """Remove an acknowledged message, now or when the broker is back."""
        try:
            self._client.hdel(self._key, tag)
        except (redis.RedisError, OSError) as exc:
            events.acknowledgement_kept_for_later(tag=tag, error=exc)
            self.remove_soon(tag)

    def remove_soon(self, tag: str) -> None:
        """Remove an acknowledged message with the next take, or when it is caught up."""
        with self._lock:
            self._unremoved.add(tag)

    def keep(self, tag: str, *, is_begun: bool) -> bool:
        """Whether a message is still in the unacked hash; *is_begun*: and removed from it by that.

        False also when the broker does not tell; then it stays.
        """
        try:
            if not self._client.hexists(self._key, tag):
                return False
        except (redis.RedisError, OSError) as exc:
            events.delivery_not_seen(tag=tag, error=exc)
            return False
        try:
            return not is_begun or bool(self._client.hdel(self._key, tag))
        except (redis.RedisError, OSError) as exc:
            # It may be removed: then nobody else has it.
            events.removal_unknown(tag=tag, error=exc)
            return True

    def catch_up(self) -> None:
        """Do what was put off, or could not be done while the broker was away."""
        if not self._unremoved and not self._unfiled:
            return
        with self._lock:
            tags, self._unremoved = self._unremoved, set()
            unfiled, self._unfiled = self._unfiled, []
        try:
            if tags:
                self._client.hdel(self._key, *tags)
            while unfiled:
                key, delivery = unfiled[-1]
                self._run(self._put_back, [self._key, key], [delivery.tag, delivery.raw])
                unfiled.pop()
        except (redis.RedisError, OSError):
            with self._lock:
                self._unremoved |= tags
                self._unfiled = unfiled + self._unfiled

    def give_back(
        self, channel: Any, tag: str, *, is_last: bool, returns: int | None = None
    ) -> bool:
        """Return a message to its queue, its tag fresh and itself marked as redelivered.

        *is_last*: behind everything that waits there, else before it.  *returns*: the count of its
        returns from now on.  False when it is not in the unacked hash any more.
        """
        value = self._client.hget(self._key, tag)
        if value is None:
            return False
        entry = entry_of(tag, value)
        priority = 0
        if entry.payload is not None:
            priority = priority_of(channel, entry.payload)
        raw = entry.redelivered(returns=returns)
        keys = [self._key, self._prefix + list_key(channel, entry.queue, priority)]
        return bool(self._run(self._give_back, keys, [tag, "LPUSH" if is_last else "RPUSH", raw]))

    def _run(self, code: _Code, keys: Sequence[str], args: Sequence[str | bytes]) -> Any:
        try:
            return self._client.evalsha(code.sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            # Not by SCRIPT LOAD: what it goes to next may be another server, or be told to forget.
            return self._client.eval(code.text, len(keys), *keys, *args)

    # -- the whole unacked hash

    def heads(self, limit: int | None = None) -> list[Entry]:
        """Return what is in the unacked hash, or some of it, without the bodies of the messages."""
        return [entry.without_body() for entry in islice(self.each_entry(), limit)]

    def entry(self, tag: str) -> Entry | None:
        """Return what is in the unacked hash under one tag, whole."""
        value = self._client.hget(self._key, tag)
        return entry_of(tag, value) if value is not None else None

    def each_entry(self) -> Iterator[Entry]:
        """Yield what is in the unacked hash, whole, of which few are in memory at a time."""
        tags: list[Any] = self._client.hkeys(self._key)
        for start in range(0, len(tags), _READ_AT_ONCE):
            for group in self._groups(tags[start : start + _READ_AT_ONCE]):
                for tag, value in zip(group, self._client.hmget(self._key, group), strict=True):
                    if value is not None:
                        yield entry_of(bytes_to_str(tag), value)

    def _groups(self, tags: list[Any]) -> Iterator[list[Any]]:
        pipe = self._client.pipeline(transaction=False)
        for tag in tags:
            pipe.hstrlen(self._key, tag)
        group: list[Any] = []
        n_bytes = 0
        for tag, length in zip(tags, pipe.execute(), strict=True):
            if group and n_bytes + length > _READ_BYTES:
                yield group
                group, n_bytes = [], 0
            group.append(tag)
            n_bytes += length
        yield group

    def tags(self) -> set[str]:
        """Return the delivery tags of what is in the unacked hash."""
        return {bytes_to_str(tag) for tag in self._client.hkeys(self._key)}

    def discard(self, tag: str) -> None:
        """Remove a message that was dealt with otherwise."""
        self._client.hdel(self._key, tag)

    def __len__(self) -> int:
        return int(self._client.hlen(self._key))

    def reconcile(self, channel: Any, held: Iterable[str]) -> int:
        """Give back what the worker does not hold any more, after two sightings; returns how
        many.
        """
        self.catch_up()
        if self._namespace:
            # The broker may have lost the list.
            self.open(self._namespace)
        strangers = self.tags() - set(held)
        again, self._strangers = strangers & self._strangers, strangers
        return sum(self.give_back(channel, tag, is_last=False) for tag in again)


class _Code:
    """A script and what a server knows it by."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@cache
def _script(name: str) -> str:
    return resources.files(__package__).joinpath("lua").joinpath(f"{name}.lua").read_text("utf-8")


def _nothing(*_: Any) -> None:
    """Nobody asked to be told."""


def _may_be_opened(delivery: Delivery, payload: dict[str, Any]) -> bool:
    return True


def _keep(delivery: Delivery, error: Exception) -> bool:
    events.unreadable(queue=delivery.queue, size=len(delivery.raw), error=error)
    return False


_opened: dict[str, Unacked] = {}
_opened_lock = threading.Lock()


def _after_fork() -> None:
    """Free the locks that another thread of the main process held at the fork."""
    global _opened_lock
    _opened_lock = threading.Lock()
    for unacked in _opened.values():
        unacked.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def unacked_of(name: str, channel: Any) -> Unacked:
    """Return the unacked hash called *name* at the broker of *channel*; one object per process and
    unacked hash.
    """
    with _opened_lock:
        unacked = _opened.get(name)
        if unacked is None:
            # Of its own: what the channel and others of its app have stays as it is.  It has one
            # more than it was given, as the main loop keeps one.
            pool = new_pool(channel)
            repeat_nothing(pool)
            unacked = _opened[name] = Unacked(name, pool, channel.global_keyprefix)
        return unacked


def opened_unacked(name: str | None) -> Unacked | None:
    """Return the unacked hash called *name* if this process has used it."""
    return _opened.get(name) if name else None


def unacked_names(channel: Any, namespace: str) -> list[str]:
    """Return the names of a namespace's unacked hashes in which something may be, whoever uses
    them.
    """
    with channel.conn_or_acquire() as client:
        # A command that kombu's prefixing client does not know: the prefix is ours to add.
        names = client.smembers(f"{channel.global_keyprefix}{UNACKED_LIST_PREFIX}{namespace}")
    return sorted(bytes_to_str(name) for name in names)
