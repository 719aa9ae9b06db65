"""Traces of what tests have the ledger do, and their check on the model: `pytest --traces`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from proof.traces import BY_HAND, Entry, Result, checked, entries
from proof.traces.recording import is_recording

if TYPE_CHECKING:
    from tests.support.redis_server import RedisServer

#: Under this name a test says how many of its calls the model allows.
ACCEPTED = "calls accepted"
_AT_ONCE = 10_000

_WRITES = {
    "HSET", "HSETNX", "HDEL", "HINCRBY", "DEL", "UNLINK", "SET", "ZADD", "ZREM", "PEXPIRE",
    "EXPIRE", "ZINCRBY",
}  # fmt: skip


class HandClient(redis.Redis):
    """A test's own client: what it writes into a namespace is told to the trace, too."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command; tell of it if it writes what scripts read."""
        execute: Any = super().execute_command  # redis-py leaves it without types
        reply = execute(*args, **options)
        words = [_text(word) for word in args]
        if words[0].upper() in _WRITES and len(words) > 1 and "}:" in words[1] and is_recording():
            prefix = words[1].partition("}:")[0] + "}:"
            seconds, micros = execute("TIME")
            execute(
                "XADD", f"{prefix}trace", "*", "script", BY_HAND, "call",
                json.dumps([[], [], [], [words]]), "at_us", seconds * 1_000_000 + micros,
                "run_id", "",
            )  # fmt: skip
        return reply

    def keys(self, *args: Any, **options: Any) -> Any:
        """Return the keys but for the traces, which are not what tests ask for."""
        return [key for key in super().keys(*args, **options) if not _is_trace(key)]

    def scan_iter(self, *args: Any, **options: Any) -> Any:
        """Go through the keys but for the traces."""
        return (key for key in super().scan_iter(*args, **options) if not _is_trace(key))


def _is_trace(key: Any) -> bool:
    return _text(key).endswith("}:trace")


_TESTS = Path(__file__).parents[1]
#: All tests of these folders are recorded and checked in every run; with --traces all are.
_FOLDERS = frozenset(
    {_TESTS / "ledger", _TESTS / "promises"}
    | {_TESTS / "integration" / name for name in ("ends", "objects", "outages", "recovery")}
)
#: So are these modules.
_MODULES = ("test_canvas", "test_chaos", "test_shifts", "test_zombies")


def is_traced(path: Path) -> bool:
    """Whether a module of tests is recorded and checked without being asked to."""
    return path.parent in _FOLDERS or path.stem in _MODULES


def _text(word: Any) -> str:
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)


def read_traces(client: redis.Redis) -> dict[str, list[Any]]:
    """Return the entries of each namespace of the client's database, by the key of its trace."""
    return {key.decode(): list(_entries_of(client, key)) for key in _traces_of(client)}


def _traces_of(client: redis.Redis) -> list[bytes]:
    return list(redis.Redis.scan_iter(client, "*}:trace", count=1000))


def _entries_of(client: redis.Redis, key: bytes) -> Iterator[Entry]:
    """Read some at a time: a long storm has hundreds of thousands."""
    found: Any = client
    last = "-"
    while part := found.xrange(key, last, count=_AT_ONCE):
        yield from entries(part)
        last = f"({part[-1][0].decode()}"


def check_traces(client: redis.Redis) -> Result:
    """Replay every trace of the client's database.  Raises Rejected, and AssertionError for calls
    of scripts that the model does not know.
    """
    total = Result(Counter(), Counter())
    for key in _traces_of(client):
        result = checked(_entries_of(client, key))
        total.accepted.update(result.accepted)
        total.uncovered.update(result.uncovered)
    assert not total.uncovered
    return total


def check_servers(servers: Sequence[RedisServer]) -> int:
    """Do so in each database of those that still run; return how many calls were accepted."""
    n_accepted = 0
    for server in servers:
        if not server.is_running:
            continue
        try:
            with server.client() as client:
                databases = list(client.info("keyspace"))
        except redis.RedisError:
            # It is frozen, or has no room.
            continue
        for name in databases:
            with server.client(db=int(name.removeprefix("db"))) as client:
                n_accepted += check_traces(client).accepted.total()
    return n_accepted
