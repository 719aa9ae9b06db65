"""Faults of passes and queues, made on the real parts: each is found as long as it lasts."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from celery_reliable.operations import Desk, check
from celery_reliable.recovery import Sweeper
from tests.integration.conftest import ONE_EACH, SOON, Project
from tests.integration.desk.faults import SEEN_SECONDS, found, wait_for_finding
from tests.integration.figures import DUE
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

STANDING = "tests.integration.project.standing"

#: The least times that there are: what lasts for two seconds is found.
LEAST = {"LEASE_SECONDS": 1, "SWEEP_SECONDS": 0.1, "WITNESS_SECONDS": 0.5, "QUEUED_SECONDS": 2}


@pytest.fixture
def quick(project: Project) -> Project:
    return project.with_settings(reliable=LEAST)


@pytest.fixture
def desk(quick: Project) -> Iterator[Desk]:
    with Desk(quick.app) as found:
        yield found


@pytest.fixture
def sweep(quick: Project) -> Iterator[Sweeper]:
    """Passes of this process."""
    sweeper = Sweeper(quick.app)
    yield sweeper
    sweeper.close()


def test_a_dead_worker_that_cannot_be_recovered(
    redis_server: RedisServer, desk: Desk, sweep: Sweeper
) -> None:
    client = redis_server.client()
    # Something of another kind has the name of its unacked hash.
    client.set("unacked:spoilt", "no hash")
    desk.ledger.workers.register(
        "one@here/ab.0",
        lease_ms=1,
        client_id=0,
        facts={"nodename": "one@here", "unacked": "unacked:spoilt"},
    )

    def sees(name: str) -> bool:
        sweep.run_if_due()
        return name in found(desk)

    wait_for(lambda: sees("pass_failed"), SEEN_SECONDS, "a pass that failed")
    wait_for(lambda: sees("recovery_stuck"), SEEN_SECONDS, "a recovery that is stuck")
    wait_for_finding(desk, "pass_failed")
    wait_for_finding(desk, "recovery_stuck")
    messages = {one.name: one.message for one in check(desk.status())}
    assert "one@here" in messages["recovery_stuck"]

    client.delete("unacked:spoilt")
    wait_for(lambda: sweep.run_if_due()[0] and not desk.workers.all(), 10, "it is recovered")
    assert found(desk) == {"worker_died"}


def test_passes_that_have_more_to_do_than_they_can(quick: Project, desk: Desk) -> None:
    """Each looks at one task, and they begin with what should have been looked at long ago."""
    ids = [quick.send("work", 0).id for _ in range(25)]
    two_minutes_ago = desk.ledger.workers.time_ms() - 120_000
    quick.redis.client().zadd(DUE, dict.fromkeys(ids, two_minutes_ago))
    sweeper = Sweeper(quick.with_settings(reliable={**LEAST, "SWEEP_BATCH": 1}).app)
    try:
        sweeper.run_if_due()
        wait_for_finding(desk, "sweeper_behind")

        def has_caught_up() -> bool:
            sweeper.run_if_due()
            return "sweeper_behind" not in found(desk)

        wait_for(has_caught_up, SEEN_SECONDS, "it has caught up")
    finally:
        sweeper.close()


@pytest.mark.keeps_fetched
def test_a_worker_that_stands(project: Project) -> None:
    hasty = project.with_settings(reliable=SOON)
    worker = hasty.start_worker("one", options=ONE_EACH, app=STANDING)
    with Desk(hasty.app) as desk:
        wait_for(lambda: desk.status().workers[0].turned_at, 20, "a beat that tells of its turns")
        # Its main loop hangs in a signal handler, for as long as the gate is shut.
        worker.signal_main(signal.SIGWINCH)
        wait_for_finding(desk, "worker_stands")
        findings = {one.name: one for one in check(desk.status())}
        assert f"pid {worker.pid}" in findings["worker_stands"].message
        project.effects.open_gate("door")
        wait_for(lambda: not found(desk), SEEN_SECONDS, "all is well again")
