"""Redis restarts and has lost nothing, with workers dead beside it: nothing runs that had ended."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest
from celery.result import AsyncResult

from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD, WORKERS, wait_until_settled
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import stored, wait_for

pytestmark = pytest.mark.full

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """A server that has written what it has answered."""
    return start_redis(ALWAYS)


class Place:
    """The project, the servers of its broker and of its ledger, and what befalls them."""

    def __init__(self, project: Project, broker: RedisServer, ledger: RedisServer) -> None:
        elsewhere = {} if ledger is broker else {"REDIS_URL": ledger.url()}
        self.project = project.with_settings(reliable={**SOON, **elsewhere})
        self.broker, self.ledger = broker, ledger

    def send(self, name: str, *args: object) -> AsyncResult[Any]:
        return self.project.send(name, *args)

    def cut_power(self, worker: Worker) -> None:
        """A worker and the servers are gone at once, and the servers come back."""
        worker.kill_group()
        for server in {self.broker, self.ledger}:
            server.kill()
            server.start()

    def wait_until_ended(self, task_ids: Sequence[str], seconds: float = 15) -> None:
        """Wait until none of these has a record."""
        with self.ledger.client() as client:
            keys = [RECORD + task_id for task_id in task_ids]
            wait_for(lambda: not client.exists(*keys), seconds, "all have ended")

    def wait_until_recovered(self) -> None:
        """Wait until the dead are forgotten, and what they held has gone somewhere."""
        with self.ledger.client() as client:
            wait_for(lambda: client.zcard(WORKERS) == 1, 30, "the dead are forgotten")
        wait_until_settled(self.ledger, 30)
        with self.broker.client() as client:
            wait_for(lambda: not client.llen("celery"), 20, "nothing in the queue")
            wait_for(lambda: not client.keys("unacked:*"), 20, "nothing in the unacked hashes")


@pytest.fixture(params=["one server", "ledger elsewhere"])
def place(request: pytest.FixtureRequest, project: Project, start_redis: StartRedis) -> Place:
    """Both on one server, or each on its own."""
    ledger = project.redis if request.param == "one server" else start_redis(ALWAYS)
    return Place(project, project.redis, ledger)


@promise("as-durable-as-redis", "revocations")
def test_what_was_revoked_as_it_waited_does_not_come_back(place: Place, effects: Effects) -> None:
    one = place.project.start_worker("one", concurrency=1)
    blocking = place.send("gate", "gate")
    effects.run_of(blocking.id)
    revoked = [place.send("work", 0.01).id for _ in range(5)]
    place.project.app.control.revoke(revoked)
    place.wait_until_ended(revoked)
    place.cut_power(one)
    effects.open_gate("gate")
    place.project.start_worker("two")

    place.wait_until_recovered()
    assert stored(blocking, 30) == "gate"
    assert [effects.runs(task_id) for task_id in revoked] == [[]] * len(revoked)


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_SHIFTS")), reason="what is settled is removed in the same step"
)
@promise("as-durable-as-redis")
def test_what_was_settled_at_a_power_cut_does_not_run_again(place: Place, effects: Effects) -> None:
    """Redis and the workers are gone at once, with messages in an unacked hash whose tasks have
    ended.
    """
    one = place.project.start_worker("one", concurrency=4)
    ended = []
    with place.broker.client() as broker:
        # What is acknowledged is removed with what is taken next, or within a second.
        for _ in range(10):
            ended += [place.send("work", 0.01).id for _ in range(8)]
            place.wait_until_ended(ended)
            (unacked,) = broker.keys("unacked:*") or [b""]
            if unacked and broker.hlen(unacked) >= 4:
                break
        one.kill_group()
        assert broker.hlen(unacked)
    place.cut_power(one)
    place.project.start_worker("two")

    place.wait_until_recovered()
    assert stored(place.send("work", 0.01), 30) == "worked"
    assert {len(effects.runs(task_id)) for task_id in ended} == {1}


@promise("as-durable-as-redis", "late-changes-nothing")
def test_numbers_of_attempts_do_not_fall(place: Place, effects: Effects) -> None:
    one = place.project.start_worker("one", concurrency=4)
    lost = place.send("gate", "gate").id
    effects.run_of(lost)
    place.cut_power(one)
    two = place.project.start_worker("two", concurrency=4)
    effects.run_of(lost, 2, timeout_seconds=30)
    retried = place.send("follow", ["retry:gate", "finish"]).id
    effects.open_gate("gate")
    place.wait_until_ended([lost, retried], 30)
    place.cut_power(two)
    place.project.start_worker("three", concurrency=4)

    place.wait_until_recovered()
    attempts = [[run.attempt for run in effects.runs(i)] for i in (lost, retried)]
    assert attempts == [[1, 2], [1, 2]]
