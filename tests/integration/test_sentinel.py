"""Behind Sentinel: a failover under a busy worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.conftest import Project
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel, start_replica
from tests.support.waiting import wait_for

QUICK = ("--without-mingle", "--without-gossip")


@pytest.fixture
def replica(redis_server: RedisServer, start_redis: Callable[..., RedisServer]) -> RedisServer:
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


def test_a_failover_under_a_busy_worker_loses_and_doubles_nothing(
    project: Project,
    replica: RedisServer,
    redis_server: RedisServer,
    sentinel: Sentinel,
    start_worker: Callable[..., Worker],
    effects: Effects,
    start_redis: Callable[..., RedisServer],
) -> None:
    results = start_redis()
    behind = project.with_settings(
        broker_url=sentinel.url(),
        result_url=results.url(),
        celery={"broker_transport_options": sentinel.options},
    )
    worker = start_worker("one", project=behind, options=QUICK)
    running = behind.send("gate", "gate")
    wait_for(lambda: effects.runs(running.id), 15, "it runs")
    fetched = [behind.send("work", 0.01) for _ in range(3)]
    wait_for(lambda: all(effects.finished(r.id) for r in fetched), 15, "the others ended")
    redis_server.kill()
    new = replica.client()
    wait_for(lambda: is_master(new), 30, "the replica is promoted")
    effects.open_gate("gate")
    assert running.get(timeout=40) == "gate"
    wait_for(lambda: not new.keys("{reliable:0}:task:*"), 30, "settled at the new master")
    later = behind.send("work", 0.01)
    assert later.get(timeout=40) == "worked"
    assert worker.is_running
    assert [len(effects.runs(r.id)) for r in (running, *fetched, later)] == [1] * 5
    # An outage is nobody's death.
    assert new.zcard("{reliable:0}:workers") == 1
