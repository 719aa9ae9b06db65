"""One scenario on each kind of server, pool and user: what must not depend on where it runs.

A server that is not installed is skipped, and why.  `tox run -e environments`.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import chain, chord
from kombu.exceptions import OperationalError

from celery_reliable.doctor import examine
from celery_reliable.exceptions import ReliableError
from celery_reliable.operations.dead_letters import DeadLetters
from tests.conftest import StartRedis
from tests.integration.conftest import Project, Start
from tests.support.acl import granted
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.redis_server import SERVERS, TOO_OLD, RedisServer, why_not
from tests.support.sentinel import Sentinel, start_replica
from tests.support.waiting import wait_for

WATCHED = ("-E",)
N_QUICK = 30
LONG_SECONDS = 5.0
SETTINGS = {"MAX_LOSSES": 1}
PARKED_SECONDS = 12.0


class Scenario:
    """Two workers of which one is killed, and what goes on meanwhile."""

    def __init__(self, project: Project, start_worker: Start, effects: Effects, pool: str) -> None:
        self.project = project
        self.effects = effects
        self.pool = pool
        self._start = start_worker

    def start(self, name: str) -> Worker:
        return self._start(name, project=self.project, pool=self.pool, options=WATCHED)

    def run(self) -> None:
        """Run all of it, and look that every promise was kept."""
        workers = [self.start("one"), self.start("two")]
        long = self.project.send("work", LONG_SECONDS)
        self.effects.run_of(long.id, timeout_seconds=30)
        pid = self.effects.runs(long.id)[0].pid
        (victim,) = (w for w in workers if pid in (w.pid, *w.children()))
        (second,) = (w for w in workers if w is not victim)
        parked_at = self.effects.now()
        parked = self.project.send("work", 0.01, countdown=PARKED_SECONDS)
        quick = [self.project.send("work", 0.01) for _ in range(N_QUICK)]
        victim.kill_group()
        third = self.start("three")
        task = self.project.task
        chained = chain(task("add").s(1, 2), task("add").s(3)).apply_async()
        counted = chord([task("add").s(n, n) for n in range(3)])(task("total").s())

        assert chained.get(timeout=60) == 6
        assert counted.get(timeout=60) == 6
        assert long.get(timeout=60) == "worked"
        assert [run.attempt for run in self.effects.runs(long.id)] == [1, 2]
        for result in quick:
            assert result.get(timeout=60) == "worked"
        # Again ran at most what the killed worker had in its two processes.
        again = sum(len(self.effects.runs(result.id)) - 1 for result in quick)
        assert 0 <= again <= 2
        assert parked.get(timeout=60) == "worked"
        (run,) = self.effects.runs(parked.id)
        assert run.started_at - parked_at >= PARKED_SECONDS - 0.1
        if self.pool == "prefork":
            self.poison()
        for worker in (second, third):
            assert worker.stop() == 0

    def poison(self) -> None:
        """A task that kills its process each time is put aside, and says so."""
        poison = self.project.send("poison")
        with pytest.raises(Exception, match="lost 2 times"):
            poison.get(timeout=90)
        assert len(self.effects.runs(poison.id)) == 2
        letters = DeadLetters(self.project.app)
        assert [(one.task_id, one.reason.value) for one in letters.list()] == [(poison.id, "lost")]


@pytest.fixture
def scenario(project: Project, start_worker: Start, effects: Effects) -> Callable[..., Scenario]:
    """The scenario with a broker, and other settings, in a pool."""

    def make(*, pool: str = "prefork", reliable: Any = None, **changes: Any) -> Scenario:
        settings = {**SETTINGS, **(reliable or {})}
        return Scenario(
            project.with_settings(reliable=settings, **changes), start_worker, effects, pool
        )

    return make


def test_redis_6_2(scenario: Callable[..., Scenario]) -> None:
    scenario().run()


@pytest.mark.parametrize("name", SERVERS)
def test_a_server(name: str, scenario: Callable[..., Scenario], start_redis: StartRedis) -> None:
    if reason := why_not(name):
        pytest.skip(reason)
    server = start_redis(binary=SERVERS[name])
    scenario(broker_url=server.url(), result_url=server.url(1)).run()


@pytest.mark.parametrize("name", SERVERS)
def test_a_user_with_few_rights(
    name: str, scenario: Callable[..., Scenario], start_redis: StartRedis
) -> None:
    """By the very rule that the README prints; nothing is asked for in vain."""
    if reason := why_not(name):
        pytest.skip(reason)
    server = start_redis(binary=SERVERS[name])
    with server.client() as admin:
        url = granted(admin)
        scenario(broker_url=url, result_url=url).run()
        refused = {row[b"object"] for row in admin.execute_command("ACL", "LOG")}
    # redis-py tells its own name with every connection, and does not mind when it may not.
    assert refused <= {b"client", b"client|setinfo"}


@pytest.mark.skipif(TOO_OLD is None, reason="OLD_REDIS_SERVER names no Redis before 6.2")
def test_a_server_that_is_too_old(
    project: Project, start_worker: Start, start_redis: StartRedis
) -> None:
    """The doctor says so, and so does a worker, which does not start."""
    assert TOO_OLD is not None
    url = start_redis(binary=Path(TOO_OLD)).url()
    refused = project.with_settings(broker_url=url, result_url=url)

    assert "E006" in {one.code for one in examine(refused.app).findings}
    worker = start_worker("one", project=refused, wait=False)
    assert worker.wait_until_ended()
    assert "6.2" in worker.log_text()


def test_greenlets(scenario: Callable[..., Scenario]) -> None:
    scenario(pool="gevent").run()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_rabbitmq(
    kind: str,
    scenario: Callable[..., Scenario],
    start_rabbit: Callable[..., Any],
    redis_server: RedisServer,
) -> None:
    celery = {"task_default_queue_type": "quorum"} if kind == "quorum" else {}
    rabbit = start_rabbit()
    scenario(
        broker_url=rabbit.url(), celery=celery, reliable={"REDIS_URL": redis_server.url()}
    ).run()


@pytest.fixture
def sentinel(
    redis_server: RedisServer, start_redis: StartRedis, tmp_path: Path
) -> Iterator[Sentinel]:
    """A Sentinel that watches three servers, of which each needs one more to write."""
    replicas = [start_replica(redis_server, start_redis) for _ in range(2)]
    for server in (redis_server, *replicas):
        with server.client() as client:
            client.config_set("min-replicas-to-write", 1)
            client.config_set("min-replicas-max-lag", 2)
    with Sentinel(tmp_path, redis_server) as running:
        yield running


def test_sentinel_and_a_planned_failover(
    scenario: Callable[..., Scenario],
    sentinel: Sentinel,
    start_redis: StartRedis,
    redis_server: RedisServer,
    effects: Effects,
) -> None:
    """Under load: nobody ends by it, what runs goes on, and what there is before and after it runs.

    What the old master takes while there are two of them is Redis's own affair.
    """
    behind = scenario(
        broker_url=sentinel.url(),
        result_url=start_redis().url(),
        celery={"broker_transport_options": sentinel.options},
    )
    workers = [behind.start(name) for name in ("one", "two")]
    running = behind.project.send("gate", "gate")
    effects.run_of(running.id, timeout_seconds=30)

    def publish() -> str:
        return str(behind.project.send("work", 0, ignore_result=True).id)

    acknowledged = [publish() for _ in range(N_QUICK)]
    wait_for(lambda: all(effects.finished(one) for one in acknowledged), 30, "they ran")
    until, n_after = time.monotonic() + 60, 0
    sentinel.fail_over()
    while n_after < N_QUICK and time.monotonic() < until:
        is_over = is_demoted(redis_server)
        try:
            task_id = publish()
        except (OperationalError, ReliableError):
            continue
        if is_over:
            acknowledged.append(task_id)
            n_after += 1
    assert n_after == N_QUICK
    effects.open_gate("gate")
    assert running.get(timeout=60) == "gate"
    assert len(effects.runs(running.id)) == 1
    wait_for(lambda: all(effects.finished(one) for one in acknowledged), 90, "all ran")
    for worker in workers:
        worker.signal_main(signal.SIGTERM)
        assert worker.wait_until_ended() == 0


def is_demoted(server: RedisServer) -> bool:
    """Whether a server follows another."""
    try:
        with server.client() as client:
            return bool(client.info("replication")["role"] == "slave")
    except redis.RedisError:
        return False
