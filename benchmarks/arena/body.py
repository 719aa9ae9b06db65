"""What every system's task does.  What it did stands in plain files, which no system knows of."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

__all__ = ["is_ready", "jobs", "run", "run_async", "wait_until_wanted"]

TICK_SECONDS = 0.1


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


def jobs() -> list[dict[str, Any]]:
    """What a publishing process is told to publish: `key`, `mode`, `delay`."""
    found: list[dict[str, Any]] = json.load(sys.stdin)
    return found


def run(key: str, mode: str) -> None:
    """Do the work, in a thread or process of its own."""
    for seconds in _steps(key, mode):
        time.sleep(seconds)


async def run_async(
    key: str, mode: str, beat: Callable[[], Awaitable[object]] | None = None
) -> None:
    """Do the work in an event loop; *beat* is what the system wants to be told with meanwhile."""
    for seconds in _steps(key, mode):
        await asyncio.sleep(seconds)
        if beat is not None:
            await beat()


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
