"""Procrastinate on PostgreSQL, with the task of its guide that runs stalled jobs again."""

from __future__ import annotations

import asyncio
import os
import sys

from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued

from benchmarks.arena import body

body.wait_until_wanted()

app = App(connector=PsycopgConnector(conninfo=os.environ["ARENA_URL"]))


@app.task(name="work")
async def work(key: str, mode: str) -> None:
    """Do what the fault needs."""
    await body.run_async(key, mode)


# The guide: each ten minutes, and 30 s without a heartbeat.
@app.periodic(cron="* * * * * */2")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True, queue="maintenance")
async def retry_stalled_jobs(context: JobContext, timestamp: int) -> None:
    """Run stalled jobs again."""
    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=10):
        await app.job_manager.retry_job(job)


async def publish() -> None:
    """Publish what is told; the key is a job's lock and queueing lock."""
    async with app.open_async():
        for job in body.jobs():
            delay = {"schedule_in": {"seconds": job["delay"]}} if job.get("delay") else {}
            deferrer = work.configure(lock=job["key"], queueing_lock=job["key"], **delay)
            try:
                await deferrer.defer_async(key=job["key"], mode=job["mode"])
            except AlreadyEnqueued:
                pass


async def serve(queue: str) -> None:
    """Work, with a heartbeat each 3 s (default: 10)."""
    async with app.open_async():
        body.is_ready()
        await app.run_worker_async(
            queues=[queue],
            concurrency=2,
            update_heartbeat_interval=3,
            # A worker that is pruned takes its stalled jobs out of the guide's sight: not before.
            stalled_worker_timeout=600,
            fetch_job_polling_interval=1,
        )


async def schema() -> None:
    """Make the tables."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


if __name__ == "__main__":
    if sys.argv[1:] == ["schema"]:
        asyncio.run(schema())
    elif sys.argv[1:]:
        asyncio.run(serve(sys.argv[1]))
    else:
        asyncio.run(publish())
