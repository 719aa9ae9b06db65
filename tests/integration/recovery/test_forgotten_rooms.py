"""A worker was forgotten while it lived: what it is delivered afterwards is found by others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.broker import WorkerHooks
from celery_reliable.model import SweepReport
from celery_reliable.operations.uninstall import release
from celery_reliable.recovery import losses
from celery_reliable.recovery.sweeper import Sweeper
from tests.integration.claiming import unacked_of
from tests.integration.conftest import SOON, Project
from tests.integration.figures import leases
from tests.support.waiting import wait_for


@pytest.fixture
def quick(project: Project) -> Project:
    return project.with_settings(reliable=SOON, celery={"task_acks_late": True})


def test_release_leaves_nothing_of_a_worker_that_was_forgotten_and_came_back(
    quick: Project,
) -> None:
    one, two = (quick.start_worker(name) for name in ("one", "two"))
    former = {lease for lease in leases(quick.redis) if lease.startswith("one@")}
    one.freeze()
    wait_for(lambda: not former & leases(quick.redis), 40, "it is forgotten")
    # Until nobody would have to look at its unacked hash any more.
    with quick.redis.client() as client:
        wait_for(
            lambda: (
                not any(
                    name.startswith(b"unacked:one@")
                    for name in client.smembers("celery-reliable.unacked:reliable")
                )
            ),
            40,
            "its empty unacked hash is struck off",
        )
    one.thaw()
    wait_for(lambda: any(x.startswith("one@") for x in leases(quick.redis)), 20, "it is back")
    two.stop()
    plain = quick.send("plain_gate", "gate")
    quick.effects.run_of(plain.id)
    one.kill_group()
    now_ms = reliable_of(quick.app).ledger.workers.time_ms
    (lease,) = reliable_of(quick.app).ledger.workers.leases()
    wait_for(lambda: now_ms() > lease.until_ms, 20, "its lease is over")

    assert release(quick.app).messages == 1
    with quick.redis.client() as client:
        assert client.llen("celery") == 1
        assert client.keys("unacked*") == client.keys("celery-reliable.unacked:*") == []


@pytest.fixture
def sweeper(quick: Project) -> Iterator[Sweeper]:
    found = Sweeper(quick.app)
    yield found
    found.close()


def test_what_is_filed_before_it_hears_that_it_is_forgotten_is_found(
    quick: Project, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = sweeper.ledger.workers
    unacked = unacked_of(sweeper.broker)
    # It takes itself for alive all along.
    unacked.worker = WorkerHooks(holder=lambda: "one.0")
    unacked.open(sweeper.config.namespace)
    workers.register("one.0", lease_ms=1, client_id=0, facts={"unacked": unacked.name})
    wait_for(lambda: workers.time_ms() > workers.leases()[0].until_ms, 5, "its lease is over")
    assert workers.declare(workers.leases()[0], "lapsed", witness_ms=0).word == "declared"
    sweeper.recovery.recover(workers.leases()[0], SweepReport())
    assert workers.leases() == []

    quick.send("plain_work", 0)
    assert len(unacked.take(["celery"], ["celery"], 1).deliveries) == 1
    # And now it dies.
    moment = losses.time.monotonic()
    for seconds in (0, 5, 10):
        monkeypatch.setattr(losses.time, "monotonic", lambda s=seconds: moment + s)
        sweeper.recovery.recover_ownerless([], SweepReport())
        monkeypatch.undo()
    with quick.redis.client() as client:
        # A plain task's message stays for its visibility timeout, and its unacked hash on the list.
        assert client.smembers("celery-reliable.unacked:reliable") == {unacked.name.encode()}
    assert len(unacked) == 1
