"""Nothing waits behind a busy worker.

What a worker has fetched and cannot begin goes back to the front of its queue within seconds.
"""

from __future__ import annotations

import json
import os
import socket

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, ids_in, wait_until_settled
from tests.integration.project.watching import TOLD
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

WATCHING = "tests.integration.project.watching"
#: In the order in which they are published.
SHORT = (("work", 0.01), ("plain_work", 0.01))


def given_back(project: Project) -> int:
    """How many messages went back to their queue, as the signal `unbegun_given_back` has it."""
    told = [json.loads(row) for row in project.effects.client.lrange(TOLD, 0, -1)]
    return sum(one["count"] for one in told if one["signal"] == "unbegun_given_back")


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_SHIFTS")), reason="in this pool nothing waits in the worker"
)
@promise("nothing-behind-busy")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_is_fetched_behind_a_long_task_begins_where_somebody_is_free(
    project: Project, pool: str
) -> None:
    """An idle worker runs it while the long task goes on."""
    # Idle before the others are there.
    project.start_worker("two", app=WATCHING, pool=pool, concurrency=1, options=("-Q", "b"))
    long = project.send("gate", "end")
    short = [project.send(name, argument) for name, argument in SHORT]
    project.start_worker("one", app=WATCHING, pool=pool, concurrency=1)
    wait_for(lambda: given_back(project) >= len(SHORT), 15, "it has had them")
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


@promise("nothing-behind-busy")
def test_each_goes_back_to_the_front_of_its_own_queue_with_the_ledger_on_another_server(
    apart: Project, ledger_server: RedisServer
) -> None:
    """The order in each queue stays that of publication."""
    two = apart.start_worker("two", wait=False, concurrency=1, options=("-Q", "c"))
    apart.start_worker("one", concurrency=1, options=("-Q", "a,b"))
    two.wait_until_ready()
    long = apart.begin("gate", "end", queue="a")
    # More than it fetches: what it gives back was before those that stayed there.
    ids = {queue: [apart.send("work", 0.01, queue=queue).id for _ in range(3)] for queue in "ab"}

    # At most: who is slow to publish finds that it fetches no more.
    wait_for(lambda: {queue: ids_in(apart.redis, queue) for queue in "ab"} == ids, 15, "all wait")
    apart.app.control.add_consumer("b", destination=[f"two@{socket.gethostname()}"])

    runs = [apart.effects.run_of(one) for one in ids["b"]]
    assert {run.worker.partition("@")[0] for run in runs} == {"two"}
    assert [run.started_at for run in runs] == sorted(run.started_at for run in runs)
    wait_for(lambda: ids_in(apart.redis, "a") == ids["a"], 15, "they wait where they were")
    assert apart.effects.runs(long.id)[0].outcome is None
    apart.effects.open_gate("end")
    runs = [apart.effects.run_of(one) for one in ids["a"]]
    assert {run.worker.partition("@")[0] for run in runs} == {"one"}
    assert [run.started_at for run in runs] == sorted(run.started_at for run in runs)
    for server in (apart.redis, ledger_server):
        wait_until_settled(server, 15)
    assert_each_ran_once(apart.effects, [long.id, *ids["a"], *ids["b"]])


@pytest.mark.full
@pytest.mark.skipif(
    bool(os.environ.get("TESTS_SHIFTS")), reason="in this pool nothing waits in the worker"
)
@promise("nothing-behind-busy")
def test_messages_do_not_go_to_and_fro_between_workers_that_are_busy_by_turns(
    project: Project,
) -> None:
    """A count that no load changes: every tenth goes back, and what each fetched at first."""
    project = project.with_settings(reliable={"GIVE_BACK_SECONDS": 0.1})
    ids = [project.send("work", (0.3, 0, 0, 0, 0)[n % 5]).id for n in range(100)]
    project.start_workers("one", "two", app=WATCHING, concurrency=1)
    wait_until_settled(project.redis, 60)
    assert_each_ran_once(project.effects, ids)
    went_back = given_back(project)
    print(f"{went_back} of {len(ids)} went back")
    assert 0 < went_back <= len(ids) / 10 + 2 * 4
