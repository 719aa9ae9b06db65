"""Redis restarts and has lost nothing, with workers dead beside it: nothing runs that had ended."""

from __future__ import annotations

import pytest

from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project, Start
from tests.integration.figures import RECORD, WORKERS, wait_until_settled
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

ALWAYS = {"appendonly": "yes", "appendfsync": "always"}


@pytest.fixture
def redis_server(start_redis: StartRedis) -> RedisServer:
    """A server that has written what it has answered."""
    return start_redis(ALWAYS)


@pytest.fixture(params=["one server", "ledger elsewhere"])
def ledger(
    request: pytest.FixtureRequest, redis_server: RedisServer, start_redis: StartRedis
) -> RedisServer:
    """The server of the ledger."""
    return redis_server if request.param == "one server" else start_redis(ALWAYS)


@pytest.fixture
def placed(project: Project, ledger: RedisServer, redis_server: RedisServer) -> Project:
    """The project with its ledger there."""
    elsewhere = {} if ledger is redis_server else {"REDIS_URL": ledger.url()}
    return project.with_settings(reliable={**SOON, **elsewhere})


def restart(*servers: RedisServer) -> None:
    for server in {server.port: server for server in servers}.values():
        server.kill()
        server.start()


def wait_until_recovered(ledger: RedisServer, redis_server: RedisServer) -> None:
    """Wait until the dead are forgotten, and what they held has gone somewhere."""
    with ledger.client() as client:
        wait_for(lambda: client.zcard(WORKERS) == 1, 30, "the dead are forgotten")
    wait_until_settled(ledger, 30)
    with redis_server.client() as client:
        wait_for(lambda: not client.llen("celery"), 20, "nothing in the queue")
        wait_for(lambda: not client.keys("unacked:*"), 20, "nothing in the rooms")


@promise("as-durable-as-redis", "revocations")
def test_what_was_revoked_as_it_waited_does_not_come_back(
    placed: Project,
    ledger: RedisServer,
    redis_server: RedisServer,
    start_worker: Start,
    effects: Effects,
) -> None:
    one = start_worker("one", project=placed, concurrency=1)
    blocking = placed.send("gate", "gate")
    effects.run_of(blocking.id)
    revoked = [placed.send("work", 0.01).id for _ in range(5)]
    placed.app.control.revoke(revoked)
    with ledger.client() as client:
        keys = [RECORD + task_id for task_id in revoked]
        wait_for(lambda: not client.exists(*keys), 15, "the worker hears it")
    one.kill_group()
    restart(redis_server, ledger)
    effects.open_gate("gate")
    start_worker("two", project=placed)

    wait_until_recovered(ledger, redis_server)
    assert blocking.get(timeout=30) == "gate"
    assert [effects.runs(task_id) for task_id in revoked] == [[]] * len(revoked)


@promise("as-durable-as-redis")
def test_what_was_settled_at_a_power_cut_does_not_run_again(
    placed: Project,
    ledger: RedisServer,
    redis_server: RedisServer,
    start_worker: Start,
    effects: Effects,
) -> None:
    """Redis and the workers are gone at once, with messages in a room whose tasks have ended."""
    one = start_worker("one", project=placed, concurrency=4)
    ended = []
    with ledger.client() as client, redis_server.client() as broker:
        # What is acknowledged is removed with what is taken next, or within a second.
        for _ in range(10):
            ended += [placed.send("work", 0.01).id for _ in range(8)]
            keys = [RECORD + task_id for task_id in ended]
            wait_for(lambda keys=keys: not client.exists(*keys), 15, "all are settled")
            (room,) = broker.keys("unacked:*") or [b""]
            n_left = broker.hlen(room) if room else 0
            if n_left >= 4:
                break
        one.kill_group()
        n_left = broker.hlen(room)
    assert n_left
    restart(redis_server, ledger)
    start_worker("two", project=placed)

    wait_until_recovered(ledger, redis_server)
    assert placed.send("work", 0.01).get(timeout=30) == "worked"
    assert {len(effects.runs(task_id)) for task_id in ended} == {1}


@promise("as-durable-as-redis", "late-changes-nothing")
def test_numbers_of_attempts_do_not_fall(
    placed: Project,
    ledger: RedisServer,
    redis_server: RedisServer,
    start_worker: Start,
    effects: Effects,
) -> None:
    one = start_worker("one", project=placed, concurrency=4)
    lost = placed.send("gate", "gate").id
    effects.run_of(lost)
    one.kill_group()
    restart(redis_server, ledger)
    two = start_worker("two", project=placed, concurrency=4)
    wait_for(lambda: len(effects.runs(lost)) == 2, 30, "it runs again")
    retried = placed.send("follow", ["retry:gate", "finish"]).id
    effects.open_gate("gate")
    with ledger.client() as client:
        keys = [RECORD + task_id for task_id in (lost, retried)]
        wait_for(lambda: not client.exists(*keys), 30, "all are settled")
    two.kill_group()
    restart(redis_server, ledger)
    start_worker("three", project=placed, concurrency=4)

    wait_until_recovered(ledger, redis_server)
    attempts = [[run.attempt for run in effects.runs(i)] for i in (lost, retried)]
    assert attempts == [[1, 2], [1, 2]]
