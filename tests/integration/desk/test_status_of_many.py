"""The status among very many records and dead letters, of which it reads so many at the most."""

from __future__ import annotations

from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, DUE, LEDGER
from tests.support.redis_server import RedisServer


def _put(redis_server: RedisServer, state: str, count: int, key: str, at_ms: int) -> None:
    with redis_server.client() as client:
        pipe = client.pipeline(transaction=False)
        for number in range(count):
            task_id = f"{state}-{number}"
            row = {"state": state, "name": "project.work", "epoch": "0-1", "published_ms": at_ms}
            if state == "dead":
                reason = "lost" if number % 3 else "failed"
                row.update(reason=reason, buried_ms=at_ms + number)
            pipe.hset(f"{LEDGER}task:{task_id}", mapping=row)
            pipe.zadd(key, {task_id: at_ms + number})
        pipe.execute()


def test_what_waits_is_estimated_and_what_is_dead_is_grouped(project: Project, desk: Desk) -> None:
    now_ms = reliable_of(project.app).ledger.workers.time_ms()
    # Parked ones are due last.
    _put(project.redis, "queued", 3_000, DUE, now_ms)
    _put(project.redis, "parked", 1_000, DUE, now_ms + 3_600_000)
    _put(project.redis, "dead", 3_000, DEAD, now_ms - 3_600_000)

    status = desk.status()

    assert not status.is_exact
    assert abs(status.tasks["queued"] - 3_000) <= 20
    assert abs(status.tasks["parked"] - 1_000) <= 20
    assert status.tasks["dead"] == 3_000
    # Nobody has grouped them yet: the status does so with 2 000 at once.
    assert sum(status.dead_by_reason.values()) == 2_000
    desk.ledger.groups.catch_up(10_000)
    assert desk.status().dead_by_reason == {"failed": 1_000, "lost": 2_000}


def test_status_reads_so_much_at_the_most(project: Project, desk: Desk) -> None:
    now_ms = reliable_of(project.app).ledger.workers.time_ms()

    def commands() -> int:
        with project.redis.client() as client:
            before = int(client.info("stats")["total_commands_processed"])
            desk.status()
            return int(client.info("stats")["total_commands_processed"]) - before

    _put(project.redis, "queued", 1_000, DUE, now_ms)
    few = commands()
    _put(project.redis, "queued", 10_000, DUE, now_ms)

    assert commands() <= few + 50
