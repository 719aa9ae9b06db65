"""Time is that of the ledger's Redis.

When its clock is set, recovery goes on, workers keep their leases, and a task keeps its ETA.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.conftest import Project, Start
from tests.integration.figures import leases
from tests.support.effects import Effects
from tests.support.faketime import SteppingServer, faketime_library
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

HOUR = 3600
LIBRARY = faketime_library()


pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime (Debian: faketime)")
full = partial(pytest.param, marks=pytest.mark.full)


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
    return project.with_settings(
        reliable={
            "LEASE_SECONDS": 4,
            "WITNESS_SECONDS": witness_seconds,
            "SWEEP_SECONDS": 1,
            "QUEUED_SECONDS": 8,
        }
    )


@promise("clock-of-redis", "waiting-is-safe")
@pytest.mark.parametrize(
    ("step", "witness_seconds"),
    [("forward", 1.0), full("back", 0.0), full("back for a moment", 1.0)],
)
def test_recovery_goes_on_the_living_live_and_waiting_ends_in_time(
    hasty: Project,
    redis_server: SteppingServer,
    start_worker: Start,
    effects: Effects,
    step: str,
    witness_seconds: float,
) -> None:
    """The clock is set by an hour while tasks run, wait, and are lost."""

    def start(name: str, queue: str) -> Worker:
        return start_worker(
            name,
            project=hasty,
            options=("-Q", queue),
        )

    killed, _ = start("one", "celery"), start("two", "others")
    stays = next(one for one in leases(redis_server) if one.startswith("two"))
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
    assert stays in leases(redis_server)


@pytest.mark.full
@promise("clock-of-redis")
@pytest.mark.parametrize("witness_seconds", [1.0])
@pytest.mark.parametrize("offset", [HOUR, -HOUR])
def test_what_has_time_to_run_keeps_it(
    hasty: Project, redis_server: SteppingServer, start_worker: Start, effects: Effects, offset: int
) -> None:
    """A step of the clock does not use up a task's `time_to_run_seconds`."""
    start_worker("one", project=hasty)
    result = hasty.send("hurried", 6.0)
    effects.run_of(result.id)
    redis_server.set_off(offset)

    assert result.get(timeout=20) == "within its time"
    assert len(effects.runs(result.id)) == 1
