"""What a worker that cannot work says: one paragraph, with what to change, and it does not
start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Project
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer

QUICK = ("--without-mingle", "--without-gossip")


def refusal(start_worker: Callable[..., Worker], project: Project) -> str:
    """Start a worker that must not start; return what it says of it."""
    worker = start_worker("one", project=project, options=QUICK, wait=False)
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
    settings: dict[str, Any],
    words: list[str],
    project: Project,
    start_worker: Callable[..., Worker],
) -> None:
    said = refusal(start_worker, project.with_settings(reliable=settings))
    assert all(word in said for word in words), said


def test_a_redis_that_evicts(
    project: Project, start_worker: Callable[..., Worker], redis_server: RedisServer
) -> None:
    client = redis_server.client()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", "allkeys-lru")
    said = refusal(start_worker, project)
    assert "allkeys-lru" in said
    assert "noeviction" in said


def test_a_redis_that_is_not_there(
    project: Project, start_worker: Callable[..., Worker], redis_server: RedisServer
) -> None:
    url = f"redis://:secret@127.0.0.1:{redis_server.port}/0"
    redis_server.stop()
    said = refusal(start_worker, project.with_settings(reliable={"REDIS_URL": url}))
    assert str(redis_server.port) in said
    assert "REDIS_URL" in said
    assert "secret" not in said


def test_the_banner_shows_the_brokers_own_url(
    project: Project, start_worker: Callable[..., Worker], redis_server: RedisServer
) -> None:
    shown = f"://:**@127.0.0.1:{redis_server.port}/0"

    said = start_worker("one", options=QUICK).log_text()

    assert f".> transport:   redis{shown}" in said
    assert f"Connected to redis{shown}" in said


def test_a_replica(
    project: Project,
    start_worker: Callable[..., Worker],
    redis_server: RedisServer,
    start_redis: Callable[..., Any],
) -> None:
    replica = start_redis()
    replica.client().replicaof("127.0.0.1", redis_server.port)
    said = refusal(start_worker, project.with_settings(reliable={"REDIS_URL": replica.url()}))
    assert "replica" in said or "master" in said


def test_a_broker_that_cannot_hold_the_ledger(
    project: Project, start_worker: Callable[..., Worker]
) -> None:
    said = refusal(
        start_worker, project.with_settings(broker_url="amqp://user:secret@127.0.0.1:1//")
    )
    assert "REDIS_URL" in said
    assert "secret" not in said
