"""Docket on Redis streams."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import datetime, timedelta, timezone

from docket import Docket, Worker

from benchmarks.arena import body

body.wait_until_wanted()


async def work(key: str, mode: str) -> None:
    """Do what the fault needs."""
    await body.run_async(key, mode)


async def publish() -> None:
    """Publish what is told; a task's key is the key."""
    async with Docket(name="arena", url=f"{os.environ['ARENA_URL']}/0") as docket:
        docket.register(work)
        for job in body.jobs():
            when = datetime.now(timezone.utc) + timedelta(seconds=job.get("delay") or 0)
            await docket.add(work, when=when, key=job["key"])(job["key"], job["mode"])


async def serve() -> None:
    """Work.  The default of the redelivery is five minutes; it is renewed while a task runs."""
    async with Docket(name="arena", url=f"{os.environ['ARENA_URL']}/0") as docket:
        docket.register(work)
        async with Worker(
            docket,
            concurrency=2,
            redelivery_timeout=timedelta(seconds=10),
            # Default: 250 ms; with room for two it then takes eight short tasks a second.
            minimum_check_interval=timedelta(milliseconds=10),
        ) as worker:
            body.is_ready()
            await worker.run_forever()


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1:] == ["worker"] else publish())
