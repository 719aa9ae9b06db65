"""dramatiq on Redis."""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.arena import body

body.wait_until_wanted()

_url = os.environ["ARENA_URL"]
#: Defaults: 60 000 ms, and a look on 1 000 of a million commands.
#: How often a failure is tried again is left at its default.
_SHORTENED: dict[str, Any] = {"heartbeat_timeout": 10_000, "maintenance_chance": 1_000_000}
broker = RedisBroker(url=f"{_url}/0", **({} if body.is_timed() else _SHORTENED))


class _Ready(dramatiq.Middleware):
    def after_worker_boot(self, broker: Any, worker: Any) -> None:
        body.is_ready()


broker.add_middleware(_Ready())
if body.is_timed():
    broker.add_middleware(Results(backend=RedisBackend(url=f"{_url}/1"), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="work")
def work(key: str, mode: str) -> None:
    """Do what the fault needs."""
    body.run(key, mode)


def publish() -> None:
    """Publish what is told; a message has the key for its id."""
    for job in body.jobs():
        message = work.message(job["key"], job["mode"]).copy(message_id=job["key"])
        broker.enqueue(message, delay=int(job["delay"] * 1000) if job.get("delay") else None)


if __name__ == "__main__":
    publish()
