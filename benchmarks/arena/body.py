"""What every system's task does.  What it did stands in plain files, which no system knows of."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis
import redis.asyncio

__all__ = [
    "COUNTER",
    "COUNTER_DB",
    "PAUSES_SECONDS",
    "PUBLISHED",
    "is_ready",
    "is_timed",
    "jobs",
    "run",
    "run_async",
    "slots",
    "wait_until_wanted",
]

TICK_SECONDS = 0.1

#: The modes of tasks whose speed is measured, with how long each waits before its one INCR.
PAUSES_SECONDS = {"incr": 0.0, "five-ms": 0.005}
#: What they count with, in a database that no system uses.
COUNTER, COUNTER_DB = "ran", 2
#: The file with the seconds that it took to publish, and the number of tasks.
PUBLISHED = "published"


def folder() -> Path:
    """Where the effects of this stage are."""
    return Path(os.environ["ARENA_FOLDER"])


def wait_until_wanted() -> None:
    """Wait, with all of it imported, until the fault wants this worker.

    Redelivery by time goes on while a worker comes up, and a busy machine may take long for it.
    """
    name = os.environ["ARENA_WORKER"]
    while (folder() / f"hold-{name}").exists():
        time.sleep(0.02)


def is_ready() -> None:
    """Tell that this worker takes tasks now."""
    (folder() / f"ready-{os.environ['ARENA_WORKER']}").touch()


def is_timed() -> bool:
    """Whether speed is measured.  Then each system has its defaults, and stores results."""
    return "ARENA_SLOTS" in os.environ


def slots() -> int:
    """How many tasks a process of the worker may run at once."""
    return int(os.environ.get("ARENA_SLOTS", "2"))


def jobs() -> Iterator[dict[str, Any]]:
    """Yield what a publishing process is told to publish: `key`, `mode`, `delay`.

    Note how long that took.  The first is not counted: it opens the connections.
    """
    first, *others = json.load(sys.stdin)
    yield first
    began = time.perf_counter()
    yield from others
    _write(folder() / PUBLISHED, f"{time.perf_counter() - began} {len(others)}")


def run(key: str, mode: str) -> None:
    """Do the work, in a thread or process of its own."""
    if mode in PAUSES_SECONDS:
        time.sleep(PAUSES_SECONDS[mode])
        _client().incr(COUNTER)
        return
    for seconds in _steps(key, mode):
        time.sleep(seconds)


async def run_async(
    key: str, mode: str, beat: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Do the work in an event loop; *beat* is what the system wants to be told with meanwhile."""
    if mode in PAUSES_SECONDS:
        await asyncio.sleep(PAUSES_SECONDS[mode])
        await _async_client().incr(COUNTER)
        return
    for seconds in _steps(key, mode):
        await asyncio.sleep(seconds)
        if beat is not None:
            await beat()


@cache
def _client() -> redis.Redis:
    return redis.Redis.from_url(f"{os.environ['ARENA_URL']}/{COUNTER_DB}")


@cache
def _async_client() -> redis.asyncio.Redis:
    return redis.asyncio.Redis.from_url(f"{os.environ['ARENA_URL']}/{COUNTER_DB}")


def _steps(key: str, mode: str) -> Iterator[float]:
    where, run_id = folder(), uuid4().hex[:8]
    if mode == "nothing":
        _write(where / "nothing", key)
        return
    file = where / f"effects-{key}"
    _note(file, "start", run_id)
    if mode == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    while mode == "gate" and not (where / "gate").exists():
        yield TICK_SECONDS
        # Written after the pause: a run that was taken away meanwhile, and goes on, is seen.
        _note(file, "tick", run_id)
    _note(file, "end", run_id)


def _note(file: Path, what: str, run_id: str) -> None:
    # A clock that all processes of a host share.
    _write(file, f"{time.monotonic():.3f} {what} {run_id} {os.getpid()}")


def _write(file: Path, line: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)
