"""One id, several lives: a result says whose it is, and no clock does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.ledger import Ledger
from celery_reliable.model import Cause, Claim, Record, SweepReport
from celery_reliable.recovery.sweeper import Sweeper
from tests.conftest import StartRedis
from tests.integration.claiming import claimed, register
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.integration.project.factory import Settings
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

ROW = "row-7"
AHEAD, BEHIND = "2099-01-01T00:00:00+00:00", "2001-01-01T00:00:00+00:00"
#: What a worker without the package stores.
STOCK = {"status": "SUCCESS", "result": "stock", "traceback": None, "children": []}


@pytest.fixture(params=["results beside the ledger", "results elsewhere"])
def project_settings(project_settings: Settings, start_redis: StartRedis, request: Any) -> Settings:
    """Stored with the settlement, or before it."""
    if request.param == "results beside the ledger":
        return project_settings
    return Settings(
        project_settings.broker_url, project_settings.effects_url, result_url=start_redis().url()
    )


def stored(project: Project, task_id: str) -> dict[str, Any]:
    backend = project.app.backend
    meta: dict[str, Any] = json.loads(backend.get(backend.get_key_for_task(task_id)))
    return meta


def store(project: Project, task_id: str, **meta: Any) -> None:
    backend = project.app.backend
    backend.client.set(backend.get_key_for_task(task_id), json.dumps({**meta, "task_id": task_id}))


def test_a_worker_that_dies_in_a_later_life_of_an_id_loses_nothing_of_it(project: Project) -> None:
    one = project.start_worker("one")
    project.send("follow", ["finish", "gate:never", "finish"], task_id=ROW).get(timeout=15)
    wait_until_settled(project.redis, 10)
    # As by a worker whose clock is ahead of the ledger's.
    meta = stored(project, ROW)
    client: Any = project.app.backend.client
    client.set(project.app.backend.get_key_for_task(ROW), json.dumps(meta | {"date_done": AHEAD}))

    project.send("follow", ["finish", "gate:never", "finish"], task_id=ROW)
    wait_for(lambda: len(project.effects.runs(ROW)) == 2, 15, "its second life")
    one.kill_group()
    project.start_worker("two")

    wait_for(lambda: len(project.effects.runs(ROW)) == 3, 20, "its second life goes on")
    wait_for(lambda: project.effects.runs(ROW)[2].outcome == "finished", 10, "and ends")
    wait_until_settled(project.redis, 10)
    assert project.effects.runs(ROW)[1].outcome is None


def begin(project: Project, task_id: str = "", **options: Any) -> tuple[Ledger, Claim]:
    """Publish a task and claim it for a worker that does nothing more."""
    ledger = reliable_of(project.app).ledger
    task_id = project.send("work", 0, task_id=task_id or None, **options).id
    register(ledger, "gone")
    return ledger, claimed(ledger, task_id)


def lose(sweeper: Sweeper, claim: Claim) -> Record | None:
    sweeper.losses.lose(claim, Cause.WORKER_LOST, SweepReport(), has_message=False)
    return sweeper.ledger.find(claim.task_id)


@promise("late-changes-nothing")
def test_a_zombies_success_settles_no_later_attempt(project: Project, sweeper: Sweeper) -> None:
    ledger, zombie = begin(project, ROW)
    record = ledger.find(ROW)
    assert record is not None
    assert lose(sweeper, zombie) is not None
    successor = claimed(ledger, ROW, "another token")
    assert successor.attempt == 2

    name = f"{record.epoch}/{zombie.attempt}/{zombie.token}"
    store(project, ROW, **STOCK, date_done=AHEAD, reliable=name)

    left = lose(sweeper, successor)
    assert left is not None
    assert left.losses == 2
