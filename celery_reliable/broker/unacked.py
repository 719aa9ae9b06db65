"""An unacked hash at the broker: what one worker was delivered and has not acknowledged.

Time alone never brings a message out of an unacked hash.  The sweeper gives back what is in it when
its worker is declared dead.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any

import redis
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from celery_reliable.compat.kombu import list_key, priority_of
from celery_reliable.message import RETURNS, returns_of, task_id_of
from celery_reliable.redis_io import Script, by_position

__all__ = [
    "UNACKED_LIST_PREFIX",
    "UNACKED_PREFIX",
    "Entry",
    "Unacked",
    "entry_of",
    "quoted",
    "script",
    "take_text",
    "unacked_names",
    "unquoted",
]


@dataclass(frozen=True)
class Entry:
    """One delivery in an unacked hash.  *payload* is None if it is not a message of kombu's."""

    tag: str
    queue: str
    raw: bytes
    payload: dict[str, Any] | None
    #: When the message was filed, in ms by the clock of its worker.
    filed_ms: int

    @property
    def task_id(self) -> str:
        """The task's id; empty for what has none."""
        return task_id_of(self.payload or {})

    @property
    def task_name(self) -> str:
        """The task's name; empty where the headers do not tell."""
        return str(((self.payload or {}).get("headers") or {}).get("task") or "")

    @property
    def returns(self) -> int:
        """How often the message came back from a dead worker, as far as that was counted."""
        return returns_of(self.payload or {})

    def without_body(self) -> Entry:
        """Return this without the bytes and the body of the message, which may be large."""
        payload = self.payload and {k: v for k, v in self.payload.items() if k != "body"}
        return replace(self, raw=b"", payload=payload)

    def redelivered(self, *, returns: int | None) -> bytes:
        """Return the message to be put back into its queue: redelivered, under a new tag.

        *returns*: how often it has come back by now; None leaves its count as it is.
        """
        if self.payload is None:
            return self.raw
        properties = self.payload.setdefault("properties", {})
        properties["delivery_tag"] = str(uuid.uuid4())
        properties.setdefault("delivery_info", {})["redelivered"] = True
        if returns is not None:
            properties[RETURNS] = returns
        return str(dumps(self.payload)).encode()


def quoted(queue: str) -> str:
    """Return a queue's name with line breaks escaped, as an entry has it in its first line."""
    return queue.replace("\\", "\\\\").replace("\n", "\\n")


def unquoted(name: str) -> str:
    """Return the name that was quoted."""
    return re.sub(r"\\([\\n])", lambda found: "\n" if found[1] == "n" else "\\", name)


def entry_of(tag: str, value: Any) -> Entry:
    """Read what an unacked hash holds under a tag."""
    head, _, raw = value.partition(b"\n")
    filed_ms, _, queue = head.partition(b" ")
    payload = None
    # Decoding may raise anything, and one unreadable message must not hide the others.
    with suppress(Exception):
        found = loads(bytes_to_str(raw))
        if isinstance(found["properties"].get("delivery_info", {}), dict):
            payload = found
    return Entry(tag, unquoted(bytes_to_str(queue)), raw, payload, int(filed_ms))


#: What the names of unacked hashes begin with; kombu's shared hash is called "unacked".
UNACKED_PREFIX = "unacked:"

#: A namespace's set of the names of unacked hashes in which something may be; with it nobody has
#: to search all keys.
UNACKED_LIST_PREFIX = "celery-reliable.unacked:"

#: So many messages are read in one step: they may be large.
_READ_AT_ONCE = 50


class Unacked:
    """An unacked hash, as anybody may read it, or move messages out of it.

    Its methods raise redis-py's errors.
    """

    def __init__(self, name: str, pool: redis.ConnectionPool, prefix: str) -> None:
        self.name = name
        #: Its key, with the channel's prefix (``global_keyprefix``), which kombu adds to all keys.
        self.key = prefix + name
        self.prefix = prefix
        self.client = redis.Redis(connection_pool=pool)

    def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes]) -> Any:
        """Return what a script of ``broker/lua`` answers."""
        try:
            return self.client.evalsha(script.sha, len(keys), *keys, *args)
        except redis.exceptions.NoScriptError:
            # Not by SCRIPT LOAD: the next command may go to another server after a failover.
            return self.client.eval(script.text, len(keys), *keys, *args)

    def strike_off(self, namespace: str) -> None:
        """Take the name off the namespace's list of unacked hashes, if nothing is in the hash."""
        self.run(script("strike_off"), [self.key, self.list_key(namespace)], [self.name])

    def list_key(self, namespace: str) -> str:
        """Return the key of the namespace's list of unacked hashes."""
        return f"{self.prefix}{UNACKED_LIST_PREFIX}{namespace}"

    def give_back(
        self, channel: Any, tag: str, *, is_last: bool, returns: int | None = None
    ) -> bool:
        """Move a message to its queue, with a fresh delivery tag and marked as redelivered.

        *is_last*: behind everything that waits there, else before it.  *returns*: what the message
        says from now on of how often it came back.  False when it is not in the hash any more.
        """
        entry = self.entry(tag)
        if entry is None:
            return False
        priority = priority_of(channel, entry.payload or {})
        raw = entry.redelivered(returns=returns)
        keys = [self.key, self.prefix + list_key(channel, entry.queue, priority)]
        args = [tag, "LPUSH" if is_last else "RPUSH", raw]
        return bool(self.run(script("give_back"), keys, args))

    def heads(self, limit: int | None = None) -> list[Entry]:
        """Return all entries, or *limit* of them, without the bodies of the messages."""
        return [entry.without_body() for entry in islice(self.each_entry(), limit)]

    def entry(self, tag: str) -> Entry | None:
        """Return the entry of one delivery tag, whole; None when there is none."""
        value = self.client.hget(self.key, tag)
        return entry_of(tag, value) if value is not None else None

    def each_entry(self) -> Iterator[Entry]:
        """Yield all entries, whole; only some of them are in memory at a time."""
        tags: list[Any] = self.client.hkeys(self.key)
        for start in range(0, len(tags), _READ_AT_ONCE):
            some = tags[start : start + _READ_AT_ONCE]
            for tag, value in zip(some, self.client.hmget(self.key, some), strict=True):
                if value is not None:
                    yield entry_of(bytes_to_str(tag), value)

    def tags(self) -> set[str]:
        """Return the delivery tags of all entries."""
        return {bytes_to_str(tag) for tag in self.client.hkeys(self.key)}

    def discard(self, tag: str) -> None:
        """Remove a message that nobody has to run any more."""
        self.client.hdel(self.key, tag)

    def __len__(self) -> int:
        return int(self.client.hlen(self.key))


def script(name: str) -> Script:
    """Return a script of ``broker/lua``."""
    return Script.of(name, _script(name))


def take_text() -> str:
    """Return the script by which a process takes its own messages; it calls ``claim``."""
    return _script("take")


@cache
def _script(name: str) -> str:
    file = resources.files(__package__).joinpath("lua").joinpath(f"{name}.lua")
    return by_position(file.read_text("utf-8"))


def unacked_names(channel: Any, namespace: str) -> list[str]:
    """Return the names on a namespace's list of unacked hashes: all in which something may be."""
    with channel.conn_or_acquire() as client:
        # kombu's client adds its prefix to the keys of some commands; SMEMBERS is not among them.
        names = client.smembers(f"{channel.global_keyprefix}{UNACKED_LIST_PREFIX}{namespace}")
    return sorted(bytes_to_str(name) for name in names)
