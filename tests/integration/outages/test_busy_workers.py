"""Redis restarts, connections are cut, the ledger is away: workers stay, and nothing runs twice."""

from __future__ import annotations

import pytest
from celery import VERSION as CELERY_VERSION

from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project, Start
from tests.integration.figures import RECORD, WORKERS, wait_until_settled
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

#: They are about what waits in a worker.
pytestmark = pytest.mark.keeps_fetched


@pytest.fixture
def worker(start_worker: Start) -> Worker:
    """One prefork worker of concurrency 2, which fetches though both its processes are busy.

    After a lost connection Celery may fetch less until the processes are free again.
    """
    return start_worker("one", options=("--prefetch-multiplier", "8"))


def fetched(project: Project) -> list[str]:
    """Two running tasks, one of each kind, and two more that were only fetched; their ids."""
    running = [project.send("gate", "gate"), project.send("plain_gate", "gate")]
    for result in running:
        project.effects.run_of(result.id)
    waiting = [project.send("work", 0.01), project.send("plain_work", 0.01)]
    client = project.redis.client()
    wait_for(lambda: client.llen("celery") == 0, 10, "the others are fetched")
    return [result.id for result in running + waiting]


@promise("nothing-lost", "never-two")
def test_redis_restarts_under_a_busy_worker(project: Project, worker: Worker) -> None:
    project.redis.client().config_set("appendfsync", "always")
    ids = fetched(project)
    project.redis.kill()
    project.redis.start()
    later = project.send("work", 0.01)
    project.effects.open_gate("gate")
    for task_id in [*ids, later.id]:
        wait_for(lambda i=task_id: project.effects.finished(i), 25, f"{task_id} ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    assert not project.effects.overlaps()
    assert [len(project.effects.runs(task_id)) for task_id in ids] == [1, 1, 1, 1]


@promise("never-two", "plain-tasks-5-6")
@pytest.mark.parametrize("kind", ["normal", "pubsub"])
def test_connections_are_cut_under_a_busy_worker(
    kind: str, project: Project, worker: Worker
) -> None:
    ids = fetched(project)
    client = project.redis.client()
    for _ in range(3):
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        later = project.send("work", 0.01)
        wait_for(lambda: client.llen("celery") == 0, 20, "the worker fetches again")
        ids.append(later.id)
    project.effects.open_gate("gate")
    for task_id in ids:
        wait_for(lambda i=task_id: project.effects.finished(i), 25, f"{task_id} ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    # Celery 5.6 itself runs a plain task again that was only fetched when the connection was cut.
    fetched_plain = ids.pop(3)
    assert CELERY_VERSION < (5, 7) or len(project.effects.runs(fetched_plain)) == 1
    assert [len(project.effects.runs(task_id)) for task_id in ids] == [1] * 6
    # Cut connections are not deaths.
    assert client.zcard(WORKERS) == 1


@promise("never-two")
def test_a_half_open_network_is_survived(project: Project, proxy: RedisProxy) -> None:
    behind = project.with_settings(
        broker_url=proxy.url(),
        reliable=SOON,
        celery={
            "broker_transport_options": {"socket_timeout": 2, "health_check_interval": 1},
        },
    )
    worker = behind.start_worker("one")
    result = project.send("gate", "gate")
    project.effects.run_of(result.id)
    proxy.stall()
    stalled_at = project.effects.now()
    wait_for(lambda: project.effects.now() - stalled_at > 3, 10, "most of a lease")
    proxy.mend()
    later = project.send("work", 0.01)
    wait_for(lambda: project.effects.finished(later.id), 25, "work goes on")
    project.effects.open_gate("gate")
    wait_for(lambda: project.effects.finished(result.id), 20, "the task ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    assert not project.effects.overlaps()


@promise("ledger-away")
@pytest.mark.parametrize("fails_open", [False, True])
def test_the_ledger_is_away_and_the_broker_is_up(
    fails_open: bool, project: Project, start_redis: StartRedis
) -> None:
    ledger = start_redis()
    reliable = {
        "REDIS_URL": ledger.url(),
        "FAIL_OPEN": fails_open,
        "LEASE_SECONDS": 4,
        "SWEEP_SECONDS": 1,
        "QUEUED_SECONDS": 8,
    }
    apart = project.with_settings(reliable=reliable)
    worker = apart.start_worker("one")
    running = apart.send("gate", "gate")
    project.effects.run_of(running.id)
    # Recorded, and claimed by nobody yet: the pool's other process is busy.
    blocker = apart.send("plain_gate", "blocker")
    project.effects.run_of(blocker.id)
    fresh = apart.send("work", 0.01)
    ledger.stop()
    stopped_at = project.effects.now()
    project.effects.open_gate("blocker")
    wait_for(lambda: project.effects.now() - stopped_at > 8, 15, "twice the lease")
    assert bool(project.effects.runs(fresh.id)) is fails_open
    project.effects.open_gate("gate")
    wait_for(lambda: project.effects.finished(running.id), 10, "the task that ran has ended")
    ledger.start()
    client = ledger.client()
    wait_for(lambda: project.effects.finished(fresh.id), 20, "the fresh one ran")
    wait_for(lambda: not client.keys(RECORD + "*"), 20, "both settled")
    assert worker.is_running
    assert [len(project.effects.runs(i)) for i in (running.id, fresh.id)] == [1, 1]
    assert client.zcard(WORKERS) == 1


@promise("nothing-lost", "never-two")
def test_an_outage_of_redis_kills_nobody(soon: Project) -> None:
    soon.start_workers("one", "two")
    result = soon.send("gate", "outage")
    soon.effects.run_of(result.id)
    soon.redis.stop()
    stopped_at = soon.effects.now()
    wait_for(lambda: soon.effects.now() - stopped_at > 8, 30, "twice the lease")
    soon.redis.start()
    client = soon.redis.client()
    back_at = soon.effects.now()
    wait_for(lambda: soon.effects.now() - back_at > 4, 30, "three passes")
    states = [client.hget(key, "state") for key in client.keys("{reliable:0}:worker:*")]
    assert states == [b"alive", b"alive"]
    soon.effects.open_gate("outage")
    wait_for(lambda: soon.effects.finished(result.id), 10, "the task ended")
    assert len(soon.effects.runs(result.id)) == 1
    later = soon.send("work", 0.01)
    wait_for(lambda: soon.effects.finished(later.id), 20, "work goes on")
    wait_until_settled(soon.redis, 10)
