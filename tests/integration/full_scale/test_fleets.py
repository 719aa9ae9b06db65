"""The figures of runs: one task on several workers; small unless `--full` is given."""

from __future__ import annotations

from collections import Counter

import pytest

from celery_reliable.operations.desk import Desk
from tests.conftest import Scale
from tests.integration.conftest import ONE_EACH, Project
from tests.integration.project import named
from tests.support.processes import Worker
from tests.support.waiting import wait_for

APP = "tests.integration.project.named"
PATIENCE_SECONDS = 120


def ended(project: Project) -> Counter[str]:
    """How often each worker has come to the end of the task."""
    return Counter(one.worker for one in project.effects.runs() if one.ended_at is not None)


def test_each_of_many_runs_it_once_though_half_of_them_are_killed(
    project: Project, scale: Scale
) -> None:
    if not scale.is_full:
        pytest.skip("its small twin is test_run_on")
    fleet = project.with_settings(reliable={"SWEEP_SECONDS": 1, "LEASE_SECONDS": 8})
    named.add_tasks(fleet.app)
    options = {"app": APP, "concurrency": 1, "pool": "solo", "options": ONE_EACH}
    workers: dict[str, Worker] = fleet.start_workers(*(f"w{n}" for n in range(12)), **options)
    result = fleet.task("everywhere").run_on(10, args=("held",))
    begun = wait_for(
        lambda: runs if len(runs := fleet.effects.runs()) == 10 else None, PATIENCE_SECONDS, "ten"
    )

    killed = [one.worker.partition("@")[0] for one in begun[:6]]
    for name in killed:
        workers[name].kill_group()

    with Desk(fleet.app) as desk:

        def missing() -> int:
            found = desk.runs.get(result.id)
            assert found is not None
            return found.missing

        # Six are alive for ten.
        wait_for(lambda: missing() == 4, PATIENCE_SECONDS, "four that are missing")
        found = desk.runs.get(result.id)
        assert found is not None
        assert "6 are alive, start 4 more" in found.sentence
        fleet.effects.open_gate("held")
        wait_for(lambda: len(ended(fleet)) == 6, PATIENCE_SECONDS, "six that have ended")
        fleet.start_workers("x0", "x1", **options)
        wait_for(lambda: missing() == 2, PATIENCE_SECONDS, "two that are missing")
        fleet.start_workers("x2", "x3", **options)

    assert result.join(timeout=PATIENCE_SECONDS) == ["held"] * 10
    assert len(ended(fleet)) == 10
    assert set(ended(fleet).values()) == {1}


def test_what_has_too_few_workers_waits_says_so_and_ends_when_others_start(
    project: Project, scale: Scale
) -> None:
    wanted, there = scale.of(full=(10, 8), small=(3, 1))
    fleet = project.with_settings(reliable={"SWEEP_SECONDS": 1, "LEASE_SECONDS": 8})
    named.add_tasks(fleet.app)
    fleet.effects.open_gate("open")
    options = {"app": APP, "concurrency": 1, "pool": "solo", "options": ONE_EACH}
    fleet.start_workers(*(f"w{n}" for n in range(there)), **options)
    result = fleet.task("everywhere").run_on(wanted, args=("open",))
    wait_for(lambda: len(ended(fleet)) == there, PATIENCE_SECONDS, "all that are there")
    with Desk(fleet.app) as desk:
        found = desk.runs.get(result.id)
    assert found is not None
    assert (found.missing, result.ready()) == (wanted - there, False)
    assert f"{there} are alive, start {wanted - there} more" in found.sentence

    fleet.start_workers(*(f"x{n}" for n in range(wanted - there)), **options)

    assert result.join(timeout=PATIENCE_SECONDS) == ["open"] * wanted
    assert len(ended(fleet)) == wanted
    assert set(ended(fleet).values()) == {1}
