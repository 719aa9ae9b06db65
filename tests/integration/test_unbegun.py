"""What a worker fetched and cannot begin goes back to its queue, where others take it."""

from __future__ import annotations

import socket

import pytest

from celery_reliable.broker.unacked import script
from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, wait_until_settled
from tests.integration.project.awkward import add_tasks
from tests.support.promises import promise
from tests.support.waiting import wait_for

AWKWARD = "tests.integration.project.awkward"
#: In the order in which they are published.
SHORT = (("work", 0.01), ("plain_work", 0.01), ("plain_late", "open"))


@promise("nothing-behind-busy")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_is_fetched_behind_a_long_task_begins_where_somebody_is_free(
    project: Project, pool: str
) -> None:
    add_tasks(project.app)
    project.effects.open_gate("open")
    # Idle before the others are there.
    project.start_worker("two", app=AWKWARD, concurrency=1, pool=pool, options=("-Q", "b"))
    long = project.send("gate", "end")
    short = [project.send(name, argument) for name, argument in SHORT]
    project.start_worker("one", app=AWKWARD, concurrency=1, pool=pool)
    client = project.redis.client()
    wait_for(lambda: client.llen("celery") == 0, 15, "the first has fetched all of it")
    project.app.control.add_consumer("celery", destination=[f"two@{socket.gethostname()}"])
    runs = [project.effects.run_of(one.id) for one in short]
    assert {run.worker.partition("@")[0] for run in runs} == {"two"}
    assert [run.started_at for run in runs] == sorted(run.started_at for run in runs)
    print(
        "began after",
        [round(r.started_at - project.effects.run_of(long.id).started_at, 2) for r in runs],
    )
    # The long one still runs, and what comes now waits for nobody, and is not fetched by it.
    late = project.send("work", 0.01)
    assert project.effects.run_of(late.id).worker.startswith("two@")
    assert project.effects.runs(long.id)[0].outcome is None
    project.effects.open_gate("end")
    assert long.get(timeout=10) == "end"
    wait_until_settled(project.redis, 15)
    assert_each_ran_once(project.effects, [one.id for one in (long, *short, late)])


def test_workers_with_short_tasks_give_nothing_back(project: Project) -> None:
    # A busy machine may stand still for a second.
    project = project.with_settings(reliable={"GIVE_BACK_SECONDS": 5})
    ids = [project.send("work", 0, ignore_result=True).id for _ in range(300)]
    project.start_workers("one", "two", concurrency=1)
    wait_for(lambda: not project.redis.client().llen("celery"), 60, "nothing waits")
    wait_until_settled(project.redis, 30)
    assert_each_ran_once(project.effects, ids)
    # The server was never even told of it.
    assert project.redis.client().script_exists(script("requeue").sha) == [False]
