"""A failover loses what the old master still takes, unless it needs a replica to write."""

from __future__ import annotations

import time

import pytest
import redis
from kombu.exceptions import OperationalError

from celery_reliable import ReliableError
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import WORKERS
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import stored, wait_for


@promise("failover-loses")
def test_a_planned_failover_under_load_loses_at_most_its_last_moment(
    project: Project,
    replica: RedisServer,
    sentinel: Sentinel,
    start_redis: StartRedis,
) -> None:
    """With `min-replicas-to-write 1` the old master refuses what it would lose."""
    # With another replica the old master would go on with the one that is not promoted.
    for server in (project.redis, replica):
        client = server.client()
        client.config_set("min-replicas-to-write", 1)
        client.config_set("min-replicas-max-lag", 2)
    behind = project.with_settings(
        broker_url=";".join([sentinel.url(), sentinel.url("localhost")]),
        result_url=start_redis().url(),
        celery={"broker_transport_options": sentinel.options},
    )
    workers = [behind.start_worker(name) for name in ("one", "two")]
    running = behind.send("gate", "gate")
    project.effects.run_of(running.id)

    acknowledged: dict[str, float] = {}
    refused_at = 0.0
    port, until = sentinel.master_port(), time.monotonic() + 60
    late, n_after = time.monotonic() + 25, 0
    sentinel.fail_over()
    while n_after < 50 and time.monotonic() < until:
        try:
            acknowledged[behind.send("work", 0, ignore_result=True).id] = time.monotonic()
        except (OperationalError, ReliableError):
            refused_at = refused_at or time.monotonic()
            if time.monotonic() > late and sentinel.master_port() != port:
                # A Sentinel on a busy machine may leave the old master as it is.
                project.redis.client().replicaof("127.0.0.1", replica.port)
            continue
        n_after += sentinel.master_port() != port
    project.effects.open_gate("gate")

    # What was acknowledged just before, the replica may not have read when it was promoted.
    certain = {one for one, at in acknowledged.items() if not 0 < refused_at - at < 1}
    wait_for(lambda: {run.task_id for run in project.effects.finished()} >= certain, 90, "all ran")
    assert stored(running, 60) == "gate"
    assert n_after == 50
    assert all(worker.is_running for worker in workers)
    assert len(project.effects.runs(running.id)) == 1


def is_master(client: redis.Redis) -> bool:
    """Whether the server is the master; not yet while it closes its connections to become it."""
    try:
        return bool(client.info("replication")["role"] == "master")
    except redis.ConnectionError:
        return False


@pytest.mark.full
@promise("one-server")
def test_a_failover_under_a_busy_worker_loses_and_doubles_nothing(
    project: Project, replica: RedisServer, sentinel: Sentinel, start_redis: StartRedis
) -> None:
    """The master is killed, and the worker goes on at the replica."""
    results = start_redis()
    behind = project.with_settings(
        broker_url=sentinel.url(),
        result_url=results.url(),
        celery={"broker_transport_options": sentinel.options},
    )
    worker = behind.start_worker("one")
    running = behind.send("gate", "gate")
    project.effects.run_of(running.id)
    fetched = [behind.send("work", 0.01) for _ in range(3)]
    wait_for(lambda: all(project.effects.finished(r.id) for r in fetched), 15, "the others ended")
    project.redis.kill()
    new = replica.client()
    wait_for(lambda: is_master(new), 30, "the replica is promoted")
    project.effects.open_gate("gate")
    assert stored(running, 40) == "gate"
    wait_for(lambda: not new.keys("{reliable:0}:task:*"), 30, "settled at the new master")
    later = behind.send("work", 0.01)
    assert stored(later, 40) == "worked"
    assert worker.is_running
    assert [len(project.effects.runs(r.id)) for r in (running, *fetched, later)] == [1] * 5
    # An outage is nobody's death.
    assert new.zcard(WORKERS) == 1
