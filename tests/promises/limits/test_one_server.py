"""One server, or Sentinel.

A Redis Cluster is refused, and so is a broker that is a list of URLs without a ``REDIS_URL``.
"""

from __future__ import annotations

import pytest

from celery_reliable import ConfigurationError
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import refusal
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


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
def test_a_redis_cluster(project: Project, cluster: tuple[RedisServer, RedisServer]) -> None:
    """A worker refuses to start, and says why."""
    _, there = cluster
    said = refusal(
        project.with_settings(reliable={"REDIS_URL": there.url()}).start_worker(wait=False)
    )
    assert "Redis Cluster" in said
    assert "not supported" in said


@promise("one-server")
def test_a_list_of_brokers(project: Project, start_redis: StartRedis) -> None:
    """A worker refuses to start, and so does whoever publishes."""
    other = start_redis()
    urls = f"redis://:secret@127.0.0.1:{project.redis.port}/0;{other.url()}"
    listed = project.with_settings(broker_url=urls)
    said = refusal(listed.start_worker(wait=False))
    assert "Sentinel" in said
    assert "REDIS_URL" in said
    assert "secret" not in said
    with pytest.raises(ConfigurationError, match="Sentinel"):
        listed.send("work", 0)
