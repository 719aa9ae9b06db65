"""A worker's heartbeat, its connection and the witness: nobody is dead who holds his lease.

The heartbeat's thread runs in this process, behind a proxy, and passes run beside it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.context import WorkerProcess
from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.scripts import script
from celery_reliable.recovery.sweeper import Sweeper
from celery_reliable.worker.heartbeat import Heartbeat
from tests.integration.conftest import Project
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

LEASE_SECONDS = 4.0
TIMES = {"LEASE_SECONDS": LEASE_SECONDS, "WITNESS_SECONDS": 0.3, "SWEEP_SECONDS": 0.4}


class Alive:
    """A worker of which only the heartbeat runs, and a sweeper that looks at it."""

    def __init__(
        self, project: Project, proxy: RedisProxy, lease_seconds: float = LEASE_SECONDS
    ) -> None:
        self.redis_server = project.redis
        near = project.with_settings(reliable={**TIMES, "LEASE_SECONDS": lease_seconds})
        far = near.with_settings(broker_url=proxy.url())
        self.process = WorkerProcess("one@host")
        host: Any = SimpleNamespace(
            app=far.app,
            reliable=reliable_of(far.app),
            process=self.process,
            is_leaving=False,
            unacked=None,
            is_stalled=False,
            facts=dict,
            claims=SimpleNamespace(stop=lambda claim: True),
            orders=SimpleNamespace(hear=lambda to_end: None),
            doing=str,
            counted=dict,
        )
        self.heartbeat = Heartbeat(host)
        self.sweeper = Sweeper(near.app)

    def start(self) -> None:
        self.heartbeat.register()
        self.heartbeat.start()
        self.sweeper.run_if_due()
        # Not in the grace of the first pass of all.
        with self.redis_server.client() as client:
            client.hset(self.sweeper.ledger.keys.meta, "grace_ms", 0)

    def lease(self) -> WorkerLease | None:
        leases = self.sweeper.ledger.workers.leases()
        return next((one for one in leases if one.worker == self.process.id), None)

    def pass_for(self, seconds: float) -> float | None:
        """Run passes so long; return after how many seconds the worker was declared dead, if it
        was, which it never may be while it holds its lease.
        """
        name, began = self.process.id, time.monotonic()
        while time.monotonic() - began < seconds:
            report, _ = self.sweeper.run_if_due()
            if report is not None and report.declared:
                assert not self.process.surely_holds(name)
                return time.monotonic() - began
            time.sleep(0.02)
        return None

    def beats(self, client: Any, count: int) -> None:
        """Run passes until the worker has renewed its lease so often; none may declare it dead."""
        worker = self.sweeper.ledger.keys.worker(self.process.id)
        wanted = int(client.hget(worker, "renewals")) + count

        def is_renewed() -> bool:
            report, _ = self.sweeper.run_if_due()
            assert report is None or not report.declared
            return int(client.hget(worker, "renewals")) >= wanted

        wait_for(is_renewed, 60, f"{count} beats")

    def close(self) -> None:
        self.heartbeat.stop()
        self.heartbeat.join(10)
        self.sweeper.close()


@pytest.fixture
def alive(project: Project, proxy: RedisProxy) -> Iterator[Alive]:
    found = Alive(project, proxy)
    yield found
    proxy.mend()
    found.close()


@promise("frozen-not-dead")
def test_whose_answers_are_lost_is_declared_dead_when_the_lease_runs_out(
    alive: Alive, proxy: RedisProxy
) -> None:
    """His requests arrive, and so would the end of a connection that he gives up."""
    alive.start()
    proxy.stall_replies()

    declared_after = alive.pass_for(4 * LEASE_SECONDS)

    print("declared dead after", declared_after)
    assert declared_after is not None
    # It was renewed a quarter of a lease before that at the earliest.
    assert declared_after >= 0.75 * LEASE_SECONDS - 0.2
    proxy.mend()
    wait_for(lambda: alive.process.has_lease and alive.lease(), 10, "a new lease")


@pytest.mark.parametrize("what", ["cut", "a beat's reply"])
def test_who_loses_his_connection_connects_anew_in_time(
    project: Project, proxy: RedisProxy, redis_server: RedisServer, what: str
) -> None:
    # A lost reply costs a fifth of the lease, and a beat a quarter: the rest is for a slow machine.
    alive, client = Alive(project, proxy, lease_seconds=10.0), redis_server.client()
    try:
        alive.start()
        for _ in range(3):
            if what == "cut":
                proxy.cut()
            else:
                proxy.drop_reply(script=script("heartbeat").sha).wait()
            alive.beats(client, 2)
        # Nothing that was put aside stays open.
        connection = alive.heartbeat.connection._connection
        wait_for(lambda: connection.left_open == [], 60, "the closing of what was left open")
    finally:
        proxy.mend()
        alive.close()


@pytest.mark.parametrize("what", ["away", "silent"])
def test_who_starts_in_an_outage_waits(alive: Alive, proxy: RedisProxy, what: str) -> None:
    if what == "away":
        proxy.sever()
    else:
        proxy.stall()
    starting = threading.Thread(target=alive.heartbeat.register)
    starting.start()
    starting.join(4)
    assert starting.is_alive()
    assert alive.lease() is None
    proxy.mend()
    starting.join(15)

    assert not starting.is_alive()
    assert alive.lease() is not None
    assert alive.process.surely_holds(alive.process.id)
