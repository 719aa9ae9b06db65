"""taskiq on Redis streams, which acknowledges when a task has ended."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime, timedelta, timezone
from typing import Any

from taskiq import TaskiqEvents, TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.arena import body

body.wait_until_wanted()

_url = os.environ["ARENA_URL"]
#: Defaults: 600 000 ms, and a lock that is held for ever when its holder is killed.
_SHORTENED: dict[str, Any] = {"idle_timeout": 10_000, "unacknowledged_lock_timeout": 5}
broker = RedisStreamBroker(
    f"{_url}/0", consumer_id="0", **({} if body.is_timed() else _SHORTENED)
).with_result_backend(RedisAsyncResultBackend(f"{_url}/1"))
source = ListRedisScheduleSource(f"{_url}/0")
scheduler = TaskiqScheduler(broker, [source])


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def _ready(_: Any) -> None:
    body.is_ready()


@broker.task(task_name="arena.work")
async def work(key: str, mode: str) -> None:
    """Do what the fault needs."""
    await body.run_async(key, mode)


async def publish() -> None:
    """Publish what is told, or leave it with the scheduler."""
    await broker.startup()
    await source.startup()
    for job in body.jobs():
        kicker = work.kicker().with_task_id(job["key"])
        if job.get("delay"):
            due = datetime.now(timezone.utc) + timedelta(seconds=job["delay"])
            await kicker.schedule_by_time(source, due, job["key"], job["mode"])
        else:
            await kicker.kiq(job["key"], job["mode"])
    await source.shutdown()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(publish())
