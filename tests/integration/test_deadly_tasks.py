"""A task that takes its worker with it is found out, and what ran beside it is not charged."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery.result import AsyncResult

from celery_reliable.operations.dead_letters import DeadLetters
from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, RECORD
from tests.integration.project.deadly import add_tasks
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

DEADLY = "tests.integration.project.deadly"
INNOCENTS = 7
MAX_LOSSES = 3
POOLS = ("prefork", "threads")
StartOne = Callable[[], Worker]


@pytest.fixture
def brief(project: Project) -> Project:
    """The project with short times, and tasks that kill their workers."""
    times = {"LEASE_SECONDS": 5, "SWEEP_SECONDS": 0.5, "WITNESS_SECONDS": 0.3}
    derived = project.with_settings(reliable={**times, "MAX_LOSSES": MAX_LOSSES})
    add_tasks(derived.app)
    return derived


@pytest.fixture
def start(request: pytest.FixtureRequest, brief: Project) -> StartOne:
    """Start a worker of eight tasks at a time, which may die before it says that it is ready."""

    def start() -> Worker:
        return brief.start_worker(
            "one",
            app=DEADLY,
            pool=request.getfixturevalue("pool"),
            concurrency=INNOCENTS + 1,
            wait=False,
        )

    return start


def losses(redis_server: RedisServer, results: list[AsyncResult[str]]) -> dict[str, int]:
    """The losses of those that have a record."""
    client = redis_server.client()
    found = {one.id: client.hget(RECORD + one.id, "losses") for one in results}
    return {task_id: int(count) for task_id, count in found.items() if count}


def work_off(start: StartOne, is_done: Callable[[], bool], seconds: float) -> int:
    """Start a worker, and another whenever one has died, until all is done; return the deaths."""
    deaths, worker = 0, start()

    def look() -> bool:
        nonlocal deaths, worker
        if not worker.is_running:
            deaths, worker = deaths + 1, start()
        return is_done()

    wait_for(look, seconds, "all are done")
    worker.end()
    return deaths


@promise("poison-stops")
@pytest.mark.parametrize("pool", POOLS)
def test_one_that_kills_its_worker_takes_nobody_along(
    pool: str, brief: Project, start: StartOne, scale: Scale
) -> None:
    for turn in range(scale.of(full=20, small=1)):
        brief.effects.clear()
        deaths = bury_one_of_many(brief, start)
        print(f"{pool} {turn}: buried after {deaths} deaths")
        assert deaths <= MAX_LOSSES + 2
        assert brief.redis.client().zcard(DEAD) == turn + 1


def bury_one_of_many(brief: Project, start: StartOne) -> int:
    """Let one of many kill its workers until it is buried; return how many that were."""
    client = brief.redis.client()
    innocents = [brief.send("bystander", 0.2) for _ in range(INNOCENTS)]
    poison = brief.send("deadly", INNOCENTS)
    charged: set[str] = set()

    def is_done() -> bool:
        charged.update(i for i, n in losses(brief.redis, innocents).items() if n)
        # Its worker is ended then, and who is killed behind a body stores nothing.
        are_over = all(one.ready() for one in innocents)
        return are_over and bool(client.zscore(DEAD, poison.id))

    deaths = work_off(start, is_done, 180)
    assert not charged
    assert [one.get(timeout=5) for one in innocents] == ["unharmed"] * INNOCENTS
    assert DeadLetters(brief.app).get(poison.id).losses == MAX_LOSSES + 1
    return deaths


@promise("poison-stops")
@pytest.mark.parametrize("pool", POOLS)
def test_a_node_that_is_gone_charges_nobody(pool: str, brief: Project, start: StartOne) -> None:
    results = [brief.send("bystander", 0.2) for _ in range(INNOCENTS)]
    worker = start()
    wait_for(lambda: len(brief.effects.runs()) == INNOCENTS, 30, "all of them run")
    worker.kill_group()
    start()
    seen: set[int] = set()

    def are_over() -> bool:
        seen.update(losses(brief.redis, results).values())
        return all(brief.effects.finished(one.id) for one in results)

    wait_for(are_over, 60, "all of them run again")
    assert seen == {0}
    assert not brief.effects.overlaps()
    assert {len(brief.effects.runs(one.id)) for one in results} == {2}
