"""SAQ on Redis: a job that gives a sign of life, and may be tried again."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from saq import Queue

from benchmarks.arena import body

body.wait_until_wanted()

queue = Queue.from_url(f"{os.environ['ARENA_URL']}/0")

#: Defaults: a timeout of 10 s, no heartbeat, one attempt.  A heartbeat is a call in the task.
_OPTIONS: dict[str, Any] = {} if body.is_timed() else {"timeout": 0, "heartbeat": 10, "retries": 5}


async def work(ctx: dict[str, Any], *, body_key: str, mode: str) -> None:
    """Do what the fault needs, and say each second that it lives."""
    beaten = time.monotonic()

    async def beat() -> None:
        nonlocal beaten
        if time.monotonic() - beaten > 1:
            beaten = time.monotonic()
            await ctx["job"].update()

    await body.run_async(body_key, mode, beat)


async def _startup(_: dict[str, Any]) -> None:
    body.is_ready()


#: Default of the sweep: each 60 s.  No other worker sweeps for so long, and each dead job takes one
#: five seconds: with less two sweeps give the same job back, and it runs twice.
settings = {
    "queue": queue,
    "functions": [work],
    "concurrency": body.slots(),
    "startup": _startup,
    **({} if body.is_timed() else {"timers": {"sweep": 12}}),
}


async def publish() -> None:
    """Publish what is told; a job's key is the key."""
    await queue.connect()
    for job in body.jobs():
        delay = {"scheduled": time.time() + job["delay"]} if job.get("delay") else {}
        await queue.enqueue(
            "work", key=job["key"], body_key=job["key"], mode=job["mode"], **_OPTIONS, **delay
        )
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(publish())
