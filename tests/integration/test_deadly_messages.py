"""A message that kills the main process which opens it stops, and what came with it is unharmed."""

from __future__ import annotations

import pytest

from celery_reliable.model import Reason
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, RECORD
from tests.integration.project.explosive import BOMB, add_tasks
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

MANY = ("--prefetch-multiplier", "100")
EXPLOSIVE = "tests.integration.project.explosive"
MAX_LOSSES = 3
INNOCENTS = 50


@pytest.fixture
def brief(project: Project) -> Project:
    """The project with short times, and the format that kills."""
    times = {"LEASE_SECONDS": 5, "SWEEP_SECONDS": 0.5, "WITNESS_SECONDS": 0.3}
    derived = project.with_settings(reliable={**times, "MAX_LOSSES": MAX_LOSSES})
    add_tasks(derived.app)
    return derived


@pytest.mark.keeps_fetched
@promise("poison-stops")
@pytest.mark.parametrize(
    ("name", "options"),
    [("work", {"serializer": BOMB}), ("plain_late", {"compression": BOMB})],
    ids=["work", "plain_late"],
)
def test_it_is_dead_lettered_and_what_was_fetched_with_it_is_not_charged(
    name: str, options: dict[str, str], brief: Project
) -> None:
    def start() -> Worker:
        return brief.start_worker("one", app=EXPLOSIVE, concurrency=1, options=MANY, wait=False)

    client = brief.redis.client()
    running = brief.send("gate", "open")
    worker, deaths = start(), 0
    wait_for(lambda: brief.effects.runs(running.id), 30, "it runs")
    innocents = [brief.send("work", 0).id for _ in range(INNOCENTS)]
    innocents += [brief.send("plain_work", 0).id]
    wait_for(lambda: not client.llen("celery"), 20, "all are fetched")
    bomb = brief.send(name, 0, **options)
    charged: set[bytes] = set()

    def is_done() -> bool:
        nonlocal worker, deaths
        if not worker.is_running:
            brief.effects.open_gate("open")
            # What it ran in a child would run on.
            worker.end()
            worker, deaths = start(), deaths + 1
        found = [client.hget(RECORD + one, "losses") for one in (running.id, *innocents)]
        charged.update(count for count in found if count)
        return bool(client.zcard(DEAD)) and all(
            brief.effects.finished(one) for one in (running.id, *innocents)
        )

    wait_for(is_done, 120, "a dead letter, and the end of all others")
    print(f"{name} {options}: a dead letter after {deaths} deaths")
    assert charged <= {b"0"}
    assert deaths <= MAX_LOSSES + 2
    (letter,) = DeadLetters(brief.app).list()
    assert (letter.task_id, letter.reason) == (bomb.id, Reason.LOST)
    assert "open" in letter.exception or name == "plain_late"
    # Whoever tells Celery of it survives that.
    later = brief.send("work", 0)
    wait_for(lambda: brief.effects.finished(later.id), 30, "work goes on")
    if name != "plain_late":
        wait_for(lambda: not client.hexists(RECORD + bomb.id, "owed"), 20, "it is announced")
        assert brief.app.AsyncResult(bomb.id).state == "FAILURE"
    assert worker.is_running


def test_whoever_tells_of_one_that_nobody_has_opened_survives_it(brief: Project) -> None:
    times = {**brief.settings.reliable, "QUEUED_SECONDS": 6, "LEASE_SECONDS": 3}
    brief = brief.with_settings(reliable=times)
    add_tasks(brief.app)

    def start() -> Worker:
        return brief.start_worker("one", app=EXPLOSIVE, options=MANY, wait=False)

    client = brief.redis.client()
    worker, deaths = start(), 0
    brief.send("work", 0).get(timeout=30)
    # Claimed as its message is filed, and buried with its only loss.
    bomb = brief.send("unforgiving", 0, serializer=BOMB)

    def is_told() -> bool:
        nonlocal worker, deaths
        if not worker.is_running:
            worker.end()
            worker, deaths = start(), deaths + 1
        is_dead = client.hget(RECORD + bomb.id, "state") == b"dead"
        return is_dead and not client.hexists(RECORD + bomb.id, "owed")

    wait_for(is_told, 60, "it is announced")
    assert deaths <= 2
    assert brief.app.AsyncResult(bomb.id).state == "FAILURE"
    later = brief.send("work", 0)
    wait_for(lambda: brief.effects.finished(later.id), 30, "work goes on")
    assert worker.is_running
