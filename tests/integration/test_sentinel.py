"""Masters that are demoted: failovers under busy workers, planned ones and others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from kombu.exceptions import OperationalError

from celery_reliable.exceptions import ReliableError
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import RECORD, WORKERS, assert_each_ran_once
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel, start_replica
from tests.support.waiting import stored, wait_for

pytestmark = pytest.mark.full


@pytest.fixture
def replica(redis_server: RedisServer, start_redis: StartRedis) -> RedisServer:
    """A replica that has caught up with the test's server."""
    return start_replica(redis_server, start_redis)


@pytest.fixture
def sentinel(redis_server: RedisServer, replica: RedisServer, tmp_path: Path) -> Iterator[Sentinel]:
    """One Sentinel that watches the two."""
    with Sentinel(tmp_path, redis_server) as running:
        yield running


def is_master(client: redis.Redis) -> bool:
    """Whether the server is the master; not yet while it closes its connections to become it."""
    try:
        return bool(client.info("replication")["role"] == "master")
    except redis.ConnectionError:
        return False


@promise("one-server")
def test_a_failover_under_a_busy_worker_loses_and_doubles_nothing(
    project: Project, replica: RedisServer, sentinel: Sentinel, start_redis: StartRedis
) -> None:
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


@promise("one-server")
@pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)
def test_processes_take_their_own_messages_at_each_master(
    project: Project, replica: RedisServer, sentinel: Sentinel
) -> None:
    behind = project.with_settings(broker_url=sentinel.url(), result_url=sentinel.url(db=1))
    options = ("broker_transport_options", "result_backend_transport_options")
    pooled = with_shifts(behind, dict.fromkeys(options, sentinel.options))
    worker = start(pooled)
    first, gate, pid = in_shift(pooled)
    assert worker.children() == [pid]
    project.redis.kill()
    wait_for(lambda: sentinel.has_promoted(replica), 30, "the replica is promoted")
    pooled.effects.open_gate(gate)
    assert stored(first, 40) == gate

    pooled.redis = replica
    later, gate, again = in_shift(pooled, "new")
    pooled.effects.open_gate(gate)
    assert stored(later, 20) == gate
    assert worker.children() == [again]
    assert {run.attempt for run in pooled.effects.runs()} == {1}
    assert_each_ran_once(pooled.effects, [run.task_id for run in pooled.effects.runs()])


@promise("one-server")
def test_behind_sentinel_a_message_is_sent_with_its_record(
    project: Project, replica: RedisServer, sentinel: Sentinel
) -> None:
    behind = project.with_settings(
        broker_url=sentinel.url(), celery={"broker_transport_options": sentinel.options}
    )
    behind.send("work", 0.01)
    client = project.redis.client()
    client.config_set("slowlog-log-slower-than", 0)
    client.slowlog_reset()
    sent = behind.send("work", 0.01)
    # The newest first: the script ends after what it calls.
    asked = [entry["command"].split()[0] for entry in client.slowlog_get(100)]
    assert [one for one in asked if one in (b"EVALSHA", b"LPUSH")] == [b"EVALSHA", b"LPUSH"]
    assert client.llen("celery") == 2
    assert client.exists(RECORD + sent.id)


@promise("failover-loses")
def test_a_planned_failover_under_load_loses_nothing_that_was_acknowledged(
    project: Project,
    replica: RedisServer,
    sentinel: Sentinel,
    start_redis: StartRedis,
) -> None:
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

    acknowledged = []
    port, until = sentinel.master_port(), time.monotonic() + 60
    n_after = 0
    sentinel.fail_over()
    while n_after < 50 and time.monotonic() < until:
        try:
            acknowledged.append(behind.send("work", 0, ignore_result=True).id)
        except (OperationalError, ReliableError):
            continue
        n_after += sentinel.master_port() != port
    project.effects.open_gate("gate")

    wait_for(
        lambda: {run.task_id for run in project.effects.finished()} >= {*acknowledged},
        90,
        "all ran",
    )
    assert stored(running, 60) == "gate"
    assert n_after == 50
    assert all(worker.is_running for worker in workers)
    assert len(project.effects.runs(running.id)) == 1
