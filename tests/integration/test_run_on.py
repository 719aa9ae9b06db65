"""One task on several workers: each of them runs it to its end once, whoever is killed."""

from __future__ import annotations

from collections import Counter

import pytest
from celery.result import GroupResult

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ConfigurationError, NotPublished
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.views import Run
from tests.integration.conftest import Project
from tests.integration.test_named_workers import fleet, start
from tests.support.waiting import wait_for

__all__ = ["fleet"]

pytestmark = pytest.mark.full

SOON_SECONDS = 30


def ended(fleet: Project) -> Counter[str]:
    """How often each worker has come to the end of the task."""
    runs = fleet.effects.runs()
    return Counter(one.worker.partition("@")[0] for one in runs if one.ended_at is not None)


def test_each_of_three_runs_it_once_though_two_of_four_are_killed(fleet: Project) -> None:
    workers = start(fleet, "a", "b", "c", "d")
    result = fleet.task("everywhere").run_on(3, args=("held",))
    begun = wait_for(lambda: runs if len(runs := fleet.effects.runs()) == 3 else None, 20, "3 runs")
    assert len({one.worker for one in begun}) == 3

    for one in begun[:2]:
        workers[one.worker.partition("@")[0]].kill_group()

    # The one that is left over takes the place of one of them; the other waits, and says so.
    with Desk(fleet.app) as desk:

        def view() -> Run:
            found = desk.runs.get(result.id)
            assert found is not None
            return found

        wait_for(lambda: view().missing == 1 and len(fleet.effects.runs()) == 4, SOON_SECONDS, "1")
        assert "1 wait for a worker" in view().sentence
        assert view().only_workers == ("*",)
        (waits,) = [one.task_id for one in view().members if not one.worker]
        assert desk.tasks.get(waits).why.kind.value == "worker"
        assert [one.run for one in desk.runs.all()] == [result.id]
        fleet.effects.open_gate("held")
        wait_for(lambda: sum(ended(fleet).values()) == 2, SOON_SECONDS, "two that have ended")
        # Those are free, and yet none of them gets the third.
        start(fleet, "e")

        assert result.join(timeout=SOON_SECONDS) == ["held"] * 3
        wait_for(lambda: set(view().states) == {"ended"}, SOON_SECONDS, "their settlement")
        assert {one.result for one in view().members} == {"SUCCESS"}
        # It is over, and can be asked for by its id only.
        assert desk.runs.all() == []
        assert set(ended(fleet).values()) == {1}
        assert ended(fleet)["e"] == 1
        assert {one.worker.partition("@")[0] for one in view().members} == set(ended(fleet))
    # As Celery has it: by its id, in another process.
    assert GroupResult.restore(result.id, app=fleet.app).join() == ["held"] * 3

    # All that are alive, and those of a name.
    alive = fleet.task("everywhere").run_on("all", args=("held",))
    assert len(alive.join(timeout=SOON_SECONDS)) == 3
    (only,) = fleet.task("everywhere").run_on("e", args=("held",)).results
    assert only.get(timeout=SOON_SECONDS) == "held"
    assert ended(fleet)["e"] == 3


def test_what_cannot_be_run_is_refused(fleet: Project) -> None:
    task = fleet.task("everywhere")

    for where in (0, -1, True, "", None):
        with pytest.raises(ConfigurationError):
            task.run_on(where)
    with pytest.raises(ConfigurationError, match="object_id"):
        fleet.task("locked").run_on(2, args=("x", 0))
    with pytest.raises(ConfigurationError, match="task_id"):
        task.run_on(2, args=("x",), task_id="mine")
    with pytest.raises(NotPublished):
        task.run_on("all")
    assert reliable_of(fleet.app).ledger.runs.due(9) == []
