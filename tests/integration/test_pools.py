"""The promises in the pools other than prefork: threads, solo, gevent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk
from celery_reliable.operations.views import IfRunning
from celery_reliable.orders import OrderKind
from tests.integration.conftest import Project, Start
from tests.integration.figures import WORKERS, passes_finish, wait_until_settled
from tests.integration.project.factory import Settings
from tests.integration.project.pooled import add_tasks
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

LEASE_SECONDS = 4


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """Short times, so that a lease can run out within a test."""
    times = {"LEASE_SECONDS": LEASE_SECONDS, "SWEEP_SECONDS": 1, "QUEUED_SECONDS": 8}
    return replace(project_settings, reliable=times)


@pytest.fixture
def start(project: Project) -> Start:
    """Start a worker of this name in this pool."""
    add_tasks(project.app)

    def one(name: str, pool: str, *options: str, wait: bool = True) -> Worker:
        return project.start_worker(
            name,
            app="tests.integration.project.pooled",
            pool=pool,
            concurrency=1 if pool == "solo" else 2,
            options=options,
            wait=wait,
        )

    return one


@promise("nothing-lost", "never-two")
@pytest.mark.parametrize(
    ("dying", "living"),
    [("gevent", "prefork"), ("prefork", "solo")],
)
def test_a_killed_workers_tasks_run_on_a_survivor_of_another_pool(
    project: Project, start: Start, dying: str, living: str
) -> None:
    client = project.redis.client()
    one = start("one", dying)
    done = project.send("work", 0.01)
    assert done.get(timeout=10) == "worked"
    running = project.begin("gate", "gate")
    lost = [running, project.send("gate", "gate")]
    project.effects.run_of(lost[1].id)
    behind = [project.send("work", 0.01) for _ in range(3)]
    two = start("two", living)
    one.kill_group()
    killed_at = project.effects.now()
    # Of several that ran in a dead worker, one at a time runs again.
    wait_for(
        lambda: any(len(project.effects.runs(r.id)) == 2 for r in lost),
        20,
        "one of them runs again",
    )
    took = max(run.started_at for r in lost for run in project.effects.runs(r.id)) - killed_at
    # Else a solo survivor would have no turn for the others.
    project.effects.open_gate("gate")
    for result in behind:
        result.get(timeout=15)
    again = project.effects.run_of(running.id, 2)
    took_behind = max(project.effects.starts(r.id)[0] for r in behind) - killed_at
    assert max(took, took_behind) <= 8
    assert again.attempt == 2
    assert again.worker.startswith("two@")
    assert running.get(timeout=15) == "gate"
    assert [[run.attempt for run in project.effects.runs(r.id)] for r in behind] == [[1]] * 3
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)
    assert two.stop() == 0
    assert not client.keys("unacked*")
    assert client.zcard(WORKERS) == 0


def test_what_an_order_holds_back_is_not_begun_after_its_worker_died(apart: Project) -> None:
    """A message that came back is claimed before it is opened, unless its task may have to wait."""
    orders = reliable_of(apart.app).ledger.orders
    one = apart.start_worker("one")
    struck = apart.begin("gate", "gate")
    order = orders.give(OrderKind.STRIKE, "project.gate", by="ann", why="the partner is down")
    one.kill_group()

    apart.start_worker("two")
    wait_for(lambda: orders.waiting([order.id])[order.id] == 1, 40, "it waits for the order")
    apart.effects.open_gate("gate")
    assert len(apart.effects.runs(struck.id)) == 1

    orders.resume(order.id, by="ann", limit=1000)
    assert struck.get(timeout=40) == "gate"
    assert len(apart.effects.runs(struck.id)) == 2


def test_a_task_that_leaves_the_main_loop_no_turn_keeps_its_lease(
    project: Project, start: Start
) -> None:
    start("one", "solo")
    start("two", "prefork")
    # Whichever fetches: one of many goes to the worker of the pool.
    results = [project.send("computing", 1.5 * LEASE_SECONDS) for _ in range(3)]
    for result in results:
        result.get(timeout=40)
        assert [run.attempt for run in project.effects.runs(result.id)] == [1]
    assert any(run.worker.startswith("one@") for run in project.effects.runs())
    assert project.redis.client().zcard(WORKERS) == 2
    wait_until_settled(project.redis, 10)


@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_what_is_stopped_by_its_id_ends_at_once_or_in_its_time_and_comes_not_back(
    project: Project, start: Start, desk: Desk, pool: str
) -> None:
    worker, is_greenlet = start("one", pool), pool == "gevent"
    task = project.begin("gate", "long")

    done = desk.revocations.revoke([task.id], by="ann", if_running=IfRunning.KILL)

    assert done.running == (task.id,)
    if is_greenlet:
        # A greenlet is ended, as a process is.
        wait_for(lambda: task.state == "REVOKED", 15, "it is revoked")
        wait_until_settled(project.redis, 20)
    else:
        # A thread is not: it runs to its end, and that counts.
        passes_finish(project.redis, 4, 30)
        project.effects.open_gate("long")
        wait_until_settled(project.redis, 20)
        assert task.state == "SUCCESS"
    outcome = "GreenletExit" if is_greenlet else "finished"
    assert [run.outcome for run in project.effects.runs(task.id)] == [outcome]
    assert project.send("work", 0.01).get(timeout=20) == "worked"
    assert worker.is_running
