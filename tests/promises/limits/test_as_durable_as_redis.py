"""A task is as durable as the Redis that holds the ledger.

What the ledger lost is lost. What had ended does not run again, and what the broker has still runs.
"""

from __future__ import annotations

import os

import pytest

from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import (
    RECORD,
    leases,
    refusal,
    wait_until_gone,
    wait_until_settled,
)
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer, free_port
from tests.support.sentinel import start_replica
from tests.support.waiting import stored, wait_for


@promise("as-durable-as-redis")
def test_what_the_broker_has_still_runs_when_the_ledger_has_forgotten_all(
    apart: Project, ledger_server: RedisServer
) -> None:
    """The ledger is on a server of its own, and is flushed."""
    workers = apart.start_workers("one", "two")
    running = [apart.begin("gate", "gate"), apart.begin("follow", ["retry:gate", "finish"])]
    ended = apart.send("work", 0.01)
    assert ended.get(timeout=15) == "worked"
    waiting = [apart.send("work", 0.01, queue="waits") for _ in range(5)]
    parked = apart.send("work", 0.01, countdown=3600)
    wait_until_gone(ledger_server, ended.id)

    ledger_server.client().flushall()

    apart.effects.open_gate("gate")
    apart.app.control.add_consumer("waits")
    for result in (*running, *waiting):
        wait_for(lambda r=result: apart.effects.finished(r.id), 60, "it ran")
    assert apart.send("work", 0.01).get(timeout=30) == "worked"
    wait_until_settled(ledger_server, 60)
    assert all(worker.is_running for worker in workers.values())
    # What had ended does not run again; what only the ledger had is lost with it.
    assert len(apart.effects.runs(ended.id)) == 1
    assert not apart.effects.runs(parked.id)


@pytest.mark.full
@promise("as-durable-as-redis")
def test_what_was_begun_in_the_lost_moments_runs_beside_itself_and_ends_once(
    project: Project, ledger_server: RedisServer, start_redis: StartRedis
) -> None:
    """A replica that lags takes over. It has the message in its queue, and its claim nowhere."""
    replica = start_replica(ledger_server, start_redis)
    with RedisProxy(ledger_server.port) as address:
        behind = project.with_settings(
            broker_url=address.url(), result_url=project.redis.url(), reliable=SOON
        )
        begun = behind.send("gate", "gate", queue="second")
        with ledger_server.client() as master, replica.client() as client:
            assert master.wait(1, 5000) == 1
            client.replicaof("127.0.0.1", free_port())
        options = {"concurrency": 1, "options": ("-Q", "celery,second")}
        one = behind.start_worker("one", **options)
        behind.effects.run_of(begun.id)
        two = behind.start_worker("two", **options)
        # It would take the message before the other, and keep it waiting for its own process.
        busy = [f"one@{os.uname().nodename}"]
        assert behind.app.control.cancel_consumer(
            "second", destination=busy, reply=True, limit=1, timeout=10
        )

        ledger_server.kill()
        address.server_port = replica.port
        with replica.client() as client:
            client.replicaof("NO", "ONE")
        behind.effects.run_of(begun.id, 2, timeout_seconds=30)
        behind.effects.open_gate("gate")

        assert begun.get(timeout=30) == "gate"
        assert behind.send("work", 0.01).get(timeout=30) == "worked"
        wait_until_settled(replica, 60)
        # Nobody died of it.
        wait_for(lambda: len(leases(replica)) == 2, 20, "both leases")
        assert one.is_running
        assert two.is_running
    assert len(behind.effects.runs(begun.id)) == 2


@promise("as-durable-as-redis")
def test_a_redis_that_evicts_is_refused(project: Project) -> None:
    """A worker does not start on a Redis that may drop keys, and says which setting helps."""
    client = project.redis.client()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    said = refusal(project.start_worker(wait=False))
    assert "allkeys-lru" in said
    assert "noeviction" in said


ALWAYS = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """A server that has written what it has answered."""
    return start_redis(ALWAYS)


def cut_power(soon: Project, worker: Worker) -> None:
    """The worker and the server are gone at once, and the server comes back."""
    worker.kill_group()
    soon.redis.kill()
    soon.redis.start()


def recovers(soon: Project) -> None:
    """Wait until the dead are forgotten, and what they held has gone somewhere."""
    wait_for(lambda: len(leases(soon.redis)) == 1, 30, "the dead are forgotten")
    wait_until_settled(soon.redis, 30)


@promise("as-durable-as-redis", "revocations")
def test_what_was_revoked_as_it_waited_does_not_come_back(soon: Project) -> None:
    """A power cut undoes no revocation."""
    one = soon.start_worker("one", concurrency=1)
    blocking = soon.begin("gate", "gate")
    revoked = [soon.send("work", 0.01).id for _ in range(5)]
    soon.app.control.revoke(revoked)
    cut_power(soon, one)
    soon.effects.open_gate("gate")
    soon.start_worker("two")

    recovers(soon)
    assert stored(blocking, 30) == "gate"
    assert [soon.effects.runs(task_id) for task_id in revoked] == [[]] * len(revoked)


@pytest.mark.full
@promise("as-durable-as-redis")
def test_what_was_settled_at_a_power_cut_does_not_run_again(soon: Project) -> None:
    """The worker had messages of tasks that have ended, and had not removed them yet: processes
    that take their own remove what they settle.
    """
    one = soon.start_worker("one", pool="threads", concurrency=4)
    ended: list[str] = []
    with soon.redis.client() as client:
        # What is acknowledged is removed with what is taken next, or within a second.
        for _ in range(10):
            ended += [soon.send("work", 0.01).id for _ in range(8)]
            keys = [RECORD + task_id for task_id in ended]
            wait_for(lambda k=keys: not client.exists(*k), 15, "all have ended")
            (unacked,) = client.keys("unacked:*") or [b""]
            if unacked and client.hlen(unacked) >= 4:
                break
        one.kill_group()
        assert client.hlen(unacked)
    cut_power(soon, one)
    soon.start_worker("two")

    recovers(soon)
    assert stored(soon.send("work", 0.01), 30) == "worked"
    assert {len(soon.effects.runs(task_id)) for task_id in ended} == {1}


@pytest.mark.full
@promise("as-durable-as-redis", "late-changes-nothing")
def test_numbers_of_attempts_do_not_fall(soon: Project) -> None:
    """After each power cut the next attempt has the next number."""
    one = soon.start_worker("one", concurrency=4)
    lost = soon.send("gate", "gate").id
    soon.effects.run_of(lost)
    cut_power(soon, one)
    two = soon.start_worker("two", concurrency=4)
    soon.effects.run_of(lost, 2, timeout_seconds=30)
    retried = soon.send("follow", ["retry:gate", "finish"]).id
    soon.effects.open_gate("gate")
    for task_id in (lost, retried):
        wait_until_gone(soon.redis, task_id, 30)
    cut_power(soon, two)
    soon.start_worker("three", concurrency=4)

    recovers(soon)
    for task_id in (lost, retried):
        assert [run.attempt for run in soon.effects.runs(task_id)] == [1, 2]
