"""One id, several lives: a result says whose it is, and no clock does."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from celery.backends.base import BaseBackend

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


class Rows(BaseBackend):
    """Keeps of a result what its table has columns for."""

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:
        return {"status": "SUCCESS", "result": None, "date_done": datetime.now(timezone.utc)}


@pytest.mark.parametrize(
    ("case", "is_settled"),
    [("its first attempt", True), ("a later attempt", False), ("a chosen id", False)],
)
def test_where_results_name_nobody_only_what_nobody_else_can_have_stored_settles(
    project: Project, sweeper: Sweeper, case: str, is_settled: bool
) -> None:
    ledger, claim = begin(project, ROW if case == "a chosen id" else "")
    if case == "a later attempt":
        lose(sweeper, claim)
        claim = claimed(ledger, claim.task_id, "another token")
    project.app._backend = Rows(project.app)

    assert (lose(sweeper, claim) is None) is is_settled


def look(project: Project, sweeper: Sweeper, task_id: str) -> tuple[Record | None, int]:
    """Let the sweeper look at a task that is in no queue; return it, and how often it was sent."""
    with project.redis.client() as client:
        client.delete("celery")
        client.zadd(sweeper.ledger.keys.due, {task_id: 1}, xx=True)
    report = SweepReport()
    sweeper.overdue.look([], [], report)
    return sweeper.ledger.find(task_id), report.resent


@pytest.mark.parametrize("how", ["by the package", "without it"])
@pytest.mark.parametrize("task_id", [ROW, "0a4f3bd6-8d3c-4f0e-9d53-2a8a5b4e6f10"])
def test_what_a_former_life_has_left_does_not_end_the_next(
    project: Project, sweeper: Sweeper, how: str, task_id: str
) -> None:
    """Nor where the id that somebody chose looks like one of Celery's."""
    marked = {"reliable": "0-1/1/token"} if how == "by the package" else {}
    store(project, task_id, **STOCK, date_done=AHEAD, **marked)
    project.send("work", 0, task_id=task_id)

    for _ in range(2):
        found, sent = look(project, sweeper, task_id)
        assert found is not None
        assert sent == 1

    # What is stored after that is of this life.
    store(project, task_id, **STOCK, date_done=BEHIND)
    assert look(project, sweeper, task_id) == (None, 0)


@pytest.mark.parametrize(("name", "state"), [("work", "SUCCESS"), ("failing", "FAILURE")])
def test_a_result_names_the_attempt_that_stored_it_and_reads_as_ever(
    project: Project, name: str, state: str
) -> None:
    result = project.send(name, 0)
    record = reliable_of(project.app).ledger.find(result.id)
    assert record is not None
    project.start_worker("one")
    wait_for(result.ready, 15, "its end")

    epoch, attempt, token = stored(project, result.id)["reliable"].split("/")

    assert (epoch, attempt) == (record.epoch, "1")
    assert token
    assert result.state == state
