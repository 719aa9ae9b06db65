"""Behind Sentinel: a failover under a busy worker."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.conftest import Project
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer, free_port, redis_binary
from tests.support.waiting import wait_for

QUICK = ("--without-mingle", "--without-gossip")


@pytest.fixture
def replica(redis_server: RedisServer, start_redis: Callable[..., RedisServer]) -> RedisServer:
    """A replica that has caught up with the test's server."""
    server = start_redis()
    client = server.client()
    client.replicaof("127.0.0.1", redis_server.port)
    wait_for(lambda: client.info("replication")["master_link_status"] == "up", 15, "it follows")
    return server


@pytest.fixture
def sentinel_port(redis_server: RedisServer, replica: RedisServer, tmp_path: Path) -> Iterator[int]:
    """One Sentinel that watches the two."""
    port = free_port()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"sentinel monitor mymaster 127.0.0.1 {redis_server.port} 1\n"
        "sentinel down-after-milliseconds mymaster 1000\n"
        "sentinel failover-timeout mymaster 5000\n"
    )
    process = subprocess.Popen(
        [str(redis_binary()), str(config), "--sentinel"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = redis.Redis(port=port)
    try:
        wait_for(lambda: _knows_replica(client), 30, "the Sentinel knows the replica")
        yield port
    finally:
        client.close()
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _knows_replica(client: redis.Redis) -> bool:
    try:
        return bool(client.sentinel_slaves("mymaster"))
    except redis.RedisError:
        return False


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
    sentinel_port: int,
    start_worker: Callable[..., Worker],
    effects: Effects,
    start_redis: Callable[..., RedisServer],
) -> None:
    results = start_redis()
    behind = project.with_settings(
        broker_url=f"sentinel://127.0.0.1:{sentinel_port}/0",
        result_url=results.url(),
        celery={"broker_transport_options": {"master_name": "mymaster"}},
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
