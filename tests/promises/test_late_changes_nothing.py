"""Whoever comes back late changes nothing of ours.

An attempt whose worker was declared dead cannot settle its task, nor publish what follows.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD, WORKERS, is_alive, wait_until_settled
from tests.integration.project.pooled import add_tasks
from tests.support.effects import Effects, Run
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for


@pytest.fixture
def workers(project: Project) -> dict[str, Worker]:
    """Two prefork workers that fetch no more than they run."""
    return project.start_workers("one", "two")


def taken_over(workers: dict[str, Worker], effects: Effects, task_id: str) -> tuple[Worker, Worker]:
    """Freeze the worker that runs the task until another runs it; return the two."""
    effects.run_of(task_id)
    first = effects.runs(task_id)[0]
    name = next(name for name in workers if first.worker.startswith(f"{name}@"))
    other = next(worker for other, worker in workers.items() if other != name)
    workers[name].freeze()
    wait_for(lambda: len(effects.runs(task_id)) == 2, 20, "the second run")
    return workers[name], other


def is_over(run: Run) -> bool:
    """Whether the run has come to its end, or was stopped by its own worker just before."""
    return run.ended_at is not None or not is_alive(run.pid)


@promise("late-changes-nothing")
def test_a_zombie_stores_nothing_sends_nothing_and_frees_nothing(
    project: Project, workers: dict[str, Worker]
) -> None:
    """Its worker was frozen for longer than its lease, and its body ends as it wakes up."""
    client = project.redis.client()
    after = project.task("work").si(0.01).set(task_id="the-callback")
    result = project.send("follow", ["gate:a", "gate:b"], link=after)
    zombie, _ = taken_over(workers, project.effects, result.id)
    record = client.hgetall(RECORD + result.id)
    # Its body ends at the moment it wakes up.
    project.effects.open_gate("a")
    zombie.thaw()
    fresh = [project.send("work", 0.01) for _ in range(4)]
    for one in fresh:
        one.get(timeout=15)
    wait_for(lambda: is_over(project.effects.runs(result.id)[0]), 10, "the zombie's body is over")
    assert not result.ready()
    assert client.hgetall(RECORD + result.id) == record
    assert not project.effects.runs("the-callback")
    project.effects.open_gate("b")
    assert result.get(timeout=10) == "run 2"
    wait_for(lambda: project.effects.finished("the-callback"), 10, "the callback")
    assert len(project.effects.runs("the-callback")) == 1
    # It registered anew and takes part again.
    wait_for(lambda: client.zcard(WORKERS) == 2, 15, "two leases")
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "everything settled")


@pytest.mark.full
@promise("late-changes-nothing")
def test_a_zombies_success_is_not_its_successors(
    project: Project, workers: dict[str, Worker]
) -> None:
    """The successor is killed then, and the task runs a third time."""
    result = project.send("follow", ["gate:a", "gate:b", "finish"])
    zombie, other = taken_over(workers, project.effects, result.id)
    project.effects.open_gate("a")
    zombie.thaw()
    wait_for(lambda: is_over(project.effects.runs(result.id)[0]), 10, "the zombie's body is over")
    other.kill_group()
    wait_for(lambda: len(project.effects.runs(result.id)) == 3, 20, "the third run")
    assert result.get(timeout=10) == "run 3"
    wait_for(lambda: not project.redis.client().keys(RECORD + "*"), 10, "settled")


@pytest.mark.full
@promise("late-changes-nothing")
def test_a_worker_that_is_cut_off_has_no_lease_to_store_a_result_under(
    project: Project, proxy: RedisProxy
) -> None:
    """Its network is cut from the ledger, and not from the result backend."""
    client = project.redis.client()
    # Results go another way: it could store one.
    behind = project.with_settings(broker_url=proxy.url())
    behind.start_worker("one", concurrency=1)
    after = project.task("work").si(0.01).set(task_id="the-callback")
    result = project.begin("follow", ["gate:a", "gate:b"], link=after)
    project.start_worker("two")
    proxy.sever()
    wait_for(lambda: len(project.effects.runs(result.id)) == 2, 20, "the second run")
    project.effects.open_gate("a")
    wait_for(lambda: project.effects.runs(result.id)[0].ended_at, 10, "the zombie's body ended")
    proxy.mend()
    # Back in the world, with all that it had to say behind it.
    wait_for(lambda: client.zcard(WORKERS) == 2, 20, "two leases")
    assert not result.ready()
    assert not project.effects.runs("the-callback")
    project.effects.open_gate("b")
    assert result.get(timeout=10) == "run 2"
    wait_for(lambda: project.effects.finished("the-callback"), 10, "the callback")
    assert len(project.effects.runs("the-callback")) == 1
    wait_for(lambda: not client.keys(RECORD + "*"), 15, "everything settled")


@promise("never-two", "late-changes-nothing")
@pytest.mark.parametrize("pool", ["threads", pytest.param("gevent", marks=pytest.mark.full)])
def test_a_taken_attempt_cannot_be_stopped_and_changes_nothing(project: Project, pool: str) -> None:
    """It runs for longer than its time; its successor waits for its end in these pools."""
    add_tasks(project.app)
    project.start_worker("one", app="tests.integration.project.pooled", pool=pool)
    result = project.send("overlong", 6.0)
    first = project.effects.run_of(result.id)
    assert result.get(timeout=30) == "run 2"
    runs = project.effects.runs(result.id)
    assert [run.attempt for run in runs] == [1, 2]
    # Nothing but prefork can stop it: its successor waits for its end, and its own outcome is none.
    assert not project.effects.overlaps()
    assert runs[0].ended_at is not None
    assert runs[1].started_at - first.started_at >= 6
    wait_until_settled(project.redis, 10)
