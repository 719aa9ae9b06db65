"""The clock of the ledger's server is set while everything runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_reliable.app import reliable_of
from tests.integration.conftest import Project, Start
from tests.integration.project.awkward import add_tasks
from tests.support.effects import Effects
from tests.support.faketime import SteppingServer, faketime_library
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

HOUR = 3600
LIBRARY = faketime_library()

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime (Debian: faketime)"),
]

#: How far off the clock is set, and after so many seconds again.
STEPS = {
    "forward": [HOUR],
    "back": [-HOUR],
    "back for a moment": [-HOUR, 0],
}


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[SteppingServer]:
    """The broker, the results and the ledger."""
    with SteppingServer(tmp_path, str(LIBRARY)) as server:
        yield server


@pytest.fixture
def hasty(project: Project, witness_seconds: float) -> Project:
    found = project.with_settings(
        reliable={
            "LEASE_SECONDS": 4,
            "WITNESS_SECONDS": witness_seconds,
            "SWEEP_SECONDS": 1,
            "QUEUED_SECONDS": 8,
            "ETA_HORIZON_SECONDS": 3,
        }
    )
    add_tasks(found.app)
    return found


@promise("clock-of-redis", "waiting-is-safe")
@pytest.mark.parametrize(
    ("step", "witness_seconds"), [("forward", 1.0), ("back", 0.0), ("back for a moment", 1.0)]
)
def test_recovery_goes_on_the_living_live_and_waiting_ends_in_time(
    hasty: Project,
    redis_server: SteppingServer,
    start_worker: Start,
    effects: Effects,
    step: str,
    witness_seconds: float,
) -> None:
    def start(name: str, queue: str) -> Worker:
        return start_worker(
            name,
            app="tests.integration.project.awkward",
            project=hasty,
            options=("-Q", queue),
        )

    workers = reliable_of(hasty.app).ledger.workers
    killed, _ = start("one", "celery"), start("two", "others")
    stays = next(one.worker for one in workers.leases() if one.worker.startswith("two"))
    long = hasty.send("gate", "long", queue="others")
    lost = hasty.send("gate", "lost")
    wait_for(lambda: effects.runs(long.id) and effects.runs(lost.id), 10, "both run")
    parked_at = effects.now()
    parked = hasty.send("work", 0.01, countdown=12, queue="others")

    for offset in STEPS[step]:
        redis_server.set_off(offset)
        # It is seen by a pass, and by a beat.
        stepped_at = effects.now()
        wait_for(lambda: effects.now() > stepped_at + 1.6, 5, "a pass")  # noqa: B023
    killed.kill_group()
    killed_at = effects.now()
    start("three", "celery")
    wait_for(lambda: len(effects.runs(lost.id)) == 2, 30, "the second run")
    took = effects.runs(lost.id)[1].started_at - killed_at

    # Grace, and by the lease twice as long as a lease can be; a worker starts meanwhile.
    print("seconds to the second run:", round(took, 1))
    assert took <= (8 if witness_seconds else 18)
    effects.open_gate("lost")
    assert lost.get(timeout=10) == "lost"
    assert parked.get(timeout=20) == "worked"
    waited = effects.starts(parked.id)[0] - parked_at
    print("seconds that a countdown of 12 took:", round(waited, 1))
    assert 11.8 <= waited <= 15
    assert [run.attempt for run in effects.runs(parked.id)] == [1]
    effects.open_gate("long")
    assert long.get(timeout=10) == "long"
    assert len(effects.runs(long.id)) == 1
    assert any(one.worker == stays and not one.is_dead for one in workers.leases())


@promise("clock-of-redis")
@pytest.mark.parametrize("witness_seconds", [1.0])
@pytest.mark.parametrize("offset", [HOUR, -HOUR])
def test_what_has_time_to_run_keeps_it(
    hasty: Project, redis_server: SteppingServer, start_worker: Start, effects: Effects, offset: int
) -> None:
    start_worker("one", app="tests.integration.project.awkward", project=hasty)
    result = hasty.send("hurried", 6.0)
    effects.run_of(result.id)
    redis_server.set_off(offset)

    assert result.get(timeout=20) == "within its time"
    assert len(effects.runs(result.id)) == 1


@promise("clock-of-redis")
@pytest.mark.parametrize("witness_seconds", [1.0])
@pytest.mark.parametrize("queues", ["celery", "celery,others"])
def test_who_waits_while_it_steps_back_can_be_stopped(
    hasty: Project, redis_server: SteppingServer, start_worker: Start, queues: str
) -> None:
    redis_server.set_off(HOUR)
    worker = start_worker(
        "one", app="tests.integration.project.awkward", project=hasty, options=("-Q", queues)
    )
    waits_again = worker_waits(redis_server)
    wait_for(lambda: worker_waits(redis_server) > waits_again, 10, "a wait that has ended")
    # What the worker waits for now ends in an hour, by the server.
    redis_server.set_off(0)

    assert worker.stop() == 0


def worker_waits(server: SteppingServer) -> int:
    """Return how many blocking commands have ended."""
    with server.client() as client:
        calls = client.info("commandstats")
    return sum(calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("brpop", "blmove"))
