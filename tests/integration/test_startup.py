"""What a worker that cannot work says: one paragraph, with what to change, and it does not
start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_reliable.exceptions import ConfigurationError
from tests.conftest import StartRedis
from tests.integration.conftest import Project, Start
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


def refusal(start_worker: Start, project: Project, **options: Any) -> str:
    """Start a worker that must not start; return what it says of it."""
    worker = start_worker("one", project=project, wait=False, **options)
    assert worker.wait_until_ended() != 0
    text = worker.log_text()
    assert "Traceback" not in text, text
    said = [line for line in text.splitlines() if line.startswith("celery_reliable:")]
    assert len(said) == 1, text
    return said[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LEASE_SECOND": 10}, ["LEASE_SECOND", "LEASE_SECONDS"]),
        ({"MAX_LOSSES": "three"}, ["MAX_LOSSES", "three"]),
        ({"LEASE_SECONDS": 2, "SWEEP_SECONDS": 5}, ["LEASE_SECONDS", "SWEEP_SECONDS", "2", "5"]),
    ],
)
def test_wrong_settings(
    settings: dict[str, Any], words: list[str], project: Project, start_worker: Start
) -> None:
    said = refusal(start_worker, project.with_settings(reliable=settings))
    assert all(word in said for word in words), said


@promise("as-durable-as-redis")
def test_a_redis_that_evicts(project: Project, start_worker: Start) -> None:
    client = project.redis.client()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    said = refusal(start_worker, project)
    assert "allkeys-lru" in said
    assert "noeviction" in said


def test_a_redis_that_is_not_there_and_is_not_waited_for(
    project: Project, start_worker: Start
) -> None:
    url = f"redis://:secret@127.0.0.1:{project.redis.port}/0"
    project.redis.stop()
    impatient = project.with_settings(
        reliable={"REDIS_URL": url}, celery={"broker_connection_retry_on_startup": False}
    )
    said = refusal(start_worker, impatient)
    assert str(project.redis.port) in said
    assert "REDIS_URL" in said
    assert "secret" not in said


def away(server: RedisServer) -> Callable[[], None]:
    """Stop a server; what is returned starts it."""
    server.stop()
    return server.start


def silent(server: RedisServer) -> Callable[[], None]:
    """Let a server answer nobody."""
    server.freeze()
    return server.thaw


@promise("ledger-away")
@pytest.mark.parametrize("be", [away, silent])
def test_a_redis_that_comes_later_is_waited_for(
    project: Project, be: Callable[[RedisServer], Callable[[], None]]
) -> None:
    come = be(project.redis)
    worker = project.start_worker("one", wait=False)
    # Then one that does not wait has ended.
    told = ("ledger_awaited", "worker_not_registered")
    wait_for(
        lambda: not worker.is_running or any(word in worker.log_text() for word in told),
        40,
        "it waits",
    )
    assert worker.is_running
    come()
    worker.wait_until_ready(60)
    assert project.send("work", 0.01).get(timeout=20) == "worked"


def test_a_replica(project: Project, start_worker: Start, start_redis: Callable[..., Any]) -> None:
    replica = start_redis()
    replica.client().replicaof("127.0.0.1", project.redis.port)
    said = refusal(start_worker, project.with_settings(reliable={"REDIS_URL": replica.url()}))
    assert "replica" in said or "master" in said


def test_a_broker_that_cannot_hold_the_ledger(project: Project, start_worker: Start) -> None:
    said = refusal(
        start_worker, project.with_settings(broker_url="amqp://user:secret@127.0.0.1:1//")
    )
    assert "REDIS_URL" in said
    assert "secret" not in said


@promise("prefork-forks")
def test_a_pool_that_does_not_fork(project: Project, start_worker: Start) -> None:
    spawning = project.with_settings(celery={"worker_pool_start_method": "spawn"})
    said = refusal(start_worker, spawning)
    assert "worker_pool_start_method" in said
    assert "spawn" in said


SPAWNED = "tests.integration.project.spawned"


@promise("prefork-forks")
def test_a_pool_whose_processes_are_spawned_by_default(
    project: Project, start_worker: Start
) -> None:
    """As on macOS.  What the error says to do helps."""
    pooled = project.with_settings(celery={"worker_pool": "prefork"})
    said = refusal(start_worker, pooled, app=SPAWNED, pool="")
    assert "spawn" in said
    assert "billiard.set_start_method('fork', force=True)" in said
    pooled.start_worker("two", app=SPAWNED, pool="", environ={"FORCE_FORK": "yes"})
    assert project.send("work", 0.01).get(timeout=30) == "worked"


def start_node(start_redis: StartRedis) -> RedisServer:
    """Start a node of a cluster: a port that is 10 000 higher has to be free as well."""
    for _ in range(20):
        try:
            return start_redis({"cluster-enabled": "yes"})
        except RuntimeError:
            continue
    raise AssertionError("no two ports in twenty that are both free")


@pytest.fixture
def cluster(start_redis: StartRedis) -> tuple[RedisServer, RedisServer]:
    """Two nodes: one has the slot of the ledger's keys, the other has not."""
    owner, other = (start_node(start_redis) for _ in range(2))
    with owner.client() as client, other.client() as far:
        slot = client.execute_command("CLUSTER KEYSLOT", "{reliable:0}")
        client.execute_command("CLUSTER ADDSLOTS", slot)
        far.execute_command("CLUSTER ADDSLOTS", *(n for n in range(16384) if n != slot))
        client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        for one in (client, far):
            wait_for(
                lambda c=one: c.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 20, "it"
            )
    return owner, other


@promise("one-server")
def test_a_redis_cluster(
    project: Project, start_worker: Start, cluster: tuple[RedisServer, RedisServer]
) -> None:
    _, there = cluster
    said = refusal(start_worker, project.with_settings(reliable={"REDIS_URL": there.url()}))
    assert "Redis Cluster" in said
    assert "not supported" in said


@promise("one-server")
def test_a_list_of_brokers(project: Project, start_worker: Start, start_redis: StartRedis) -> None:
    other = start_redis()
    urls = f"redis://:secret@127.0.0.1:{project.redis.port}/0;{other.url()}"
    listed = project.with_settings(broker_url=urls)
    said = refusal(start_worker, listed)
    assert "Sentinel" in said
    assert "REDIS_URL" in said
    assert "secret" not in said
    with pytest.raises(ConfigurationError, match="Sentinel"):
        listed.send("work", 0)


def test_a_list_of_brokers_with_a_ledger_elsewhere(
    project: Project, start_redis: StartRedis
) -> None:
    first, second = start_redis(), start_redis()
    listed = project.with_settings(
        broker_url=f"{first.url()};{second.url()}",
        reliable={"REDIS_URL": project.redis.url(), "ETA_HORIZON_SECONDS": 2},
    )
    first.stop()
    worker = listed.start_worker("one")
    assert listed.send("work", 0.01).get(timeout=20) == "worked"
    # What a pass sends goes to the one that is there, too.
    parked = listed.send("work", 0.01, countdown=3)
    assert parked.get(timeout=20) == "worked"
    assert worker.is_running
