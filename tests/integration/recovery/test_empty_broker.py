"""The queues' server loses what it had, and the ledger elsewhere does not: all is sent again at
once.
"""

from __future__ import annotations

import time

import pytest

from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, wait_until_settled
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

#: QUEUED_SECONDS is 60.
SOON_SECONDS = 15


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """A broker that keeps nothing."""
    return start_redis({"appendonly": "no", "save": ""})


def test_what_was_queued_runs_at_once(apart: Project, ledger_server: RedisServer) -> None:
    apart.start_worker()
    gates = [apart.send("gate", "gate").id for _ in range(2)]
    for task_id in gates:
        apart.effects.run_of(task_id)
    queued = [apart.send("work", 0.01).id for _ in range(100)]
    parked = apart.send("work", 0.01, countdown=3600).id
    with ledger_server.client() as client:
        wait_for(lambda: client.hexists("{reliable:0}:meta", "broker"), 15, "a pass has met it")
    apart.redis.kill()
    apart.redis.start()
    apart.effects.open_gate("gate")
    started = time.monotonic()
    wait_for(lambda: len(apart.effects.finished()) >= 102, 40, "all of them ran")
    assert time.monotonic() - started < SOON_SECONDS
    with ledger_server.client() as client:
        # What has its time waits for it.
        assert client.hget(f"{{reliable:0}}:task:{parked}", "state") == b"parked"
    apart.app.control.revoke(parked)
    wait_until_settled(ledger_server, 20)
    assert_each_ran_once(apart.effects, [*gates, *queued])
