"""The ledger's Redis forgets, while broker and workers go on: what the broker has still runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD, wait_until_settled
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

QUICK = ("--without-mingle", "--without-gossip")
# The least that the other settings allow.
TIMES = {"QUEUED_SECONDS": 8, "LEASE_SECONDS": 4, "SWEEP_SECONDS": 1}
NAMES = ("one", "two")

Start = Callable[..., Worker]


@pytest.fixture
def ledger(start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A Redis for the ledger alone that keeps nothing but what it is told to save."""
    return start_redis({"appendonly": "no", "save": ""})


@pytest.fixture
def apart(project: Project, ledger: RedisServer) -> Project:
    """The project with its ledger on a Redis of its own."""
    return project.with_settings(reliable={**TIMES, "REDIS_URL": ledger.url()})


@pytest.fixture
def workers(apart: Project, start_worker: Start) -> list[Worker]:
    """Two workers of concurrency 2."""
    pair = [start_worker(name, project=apart, options=QUICK, wait=False) for name in NAMES]
    for one in pair:
        one.wait_until_ready()
    return pair


def go_on(
    apart: Project,
    ledger: RedisServer,
    effects: Effects,
    redis_server: RedisServer,
    workers: Sequence[Worker],
    task_ids: Sequence[str],
) -> None:
    """See everything end and a new task run, with workers that nobody has touched."""
    wanted = set(task_ids)
    wait_for(
        lambda: wanted <= {run.task_id for run in effects.finished()}, 60, "all of them finished"
    )
    assert apart.send("work", 0.01).get(timeout=30) == "worked"
    wait_until_settled(ledger, 60)
    with redis_server.client() as client:
        wait_for(lambda: not client.llen("celery"), 20, "nothing in the queue")
        wait_for(lambda: not client.keys("unacked*"), 20, "nothing in the workers' rooms")
    with ledger.client() as client:
        wait_for(lambda: client.zcard("{reliable:0}:workers") == len(workers), 20, "both leases")
    assert all(worker.is_running for worker in workers)
    # An attempt without a record stores its result with nobody waiting for that.
    wait_for(
        lambda: {apart.app.AsyncResult(task_id).state for task_id in wanted} == {"SUCCESS"},
        20,
        "all results stored",
    )


@pytest.mark.parametrize("how", ["restarted from an older snapshot", "flushed"])
def test_a_ledger_that_forgets(
    apart: Project,
    ledger: RedisServer,
    workers: list[Worker],
    effects: Effects,
    redis_server: RedisServer,
    how: str,
) -> None:
    send = apart.send
    # Those that the snapshot has: two run, one ended after it, and others wait.
    running = [send("gate", "early").id for _ in range(2)]
    ending = send("gate", "between")
    for task_id in (*running, ending.id):
        wait_for(lambda i=task_id: effects.runs(i), 15, "it runs")
    known = [send("work", 0.01, queue="waits").id for _ in range(5)]
    with ledger.client() as client:
        client.save()
    # Those that it does not have: one ended, others run or wait.
    effects.open_gate("between")
    ended = send("work", 0.01)
    assert [ending.get(timeout=15), ended.get(timeout=15)] == ["between", "worked"]
    late = [send("gate", "late").id, send("follow", ["retry:late", "finish"]).id]
    for task_id in late:
        wait_for(lambda i=task_id: effects.runs(i), 15, "it runs")
    unknown = [send("work", 0.01).id for _ in range(5)]
    unknown += [send("work", 0.01, queue="waits").id for _ in range(5)]
    with ledger.client() as client:
        wait_for(lambda: not client.exists(RECORD + ended.id), 10, "it is settled")
        if how == "flushed":
            client.flushall()
    if how != "flushed":
        ledger.kill()
        ledger.start()
        with ledger.client() as client:
            assert client.exists(RECORD + known[0])
            assert not client.exists(RECORD + late[0])
    for gate in ("early", "late"):
        effects.open_gate(gate)
    with redis_server.client() as client:
        # A queue that nobody has consumed so far.
        assert client.llen("waits") == 10
    for worker in workers:
        worker.wait_until_ready()
    apart.app.control.add_consumer("waits")
    everything = [*running, ending.id, *known, ended.id, *late, *unknown]
    go_on(apart, ledger, effects, redis_server, workers, everything)
    runs = [len(effects.runs(task_id)) for task_id in everything]
    print(f"ledger {how}: {len(everything)} tasks, {sum(runs)} runs")
    # What had ended and been stored has no reason to run again.
    assert len(effects.runs(ended.id)) == 1
