"""Tasks that name the workers which may run them, or run on several, whoever is killed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from celery.result import GroupResult
from celery.utils.nodenames import gethostname

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ConfigurationError, NotPublished
from celery_reliable.model import State
from celery_reliable.operations import views
from celery_reliable.operations.desk import Desk
from tests.integration.conftest import Project
from tests.integration.project import named
from tests.support import effects
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

APP = "tests.integration.project.named"
#: Well below QUEUED_SECONDS, after which anything that was lost would be sent again.
SOON_SECONDS = 20


@pytest.fixture
def fleet(project: Project) -> Project:
    """A project whose tasks name workers."""
    found = project.with_settings(reliable={"SWEEP_SECONDS": 0.5, "LEASE_SECONDS": 4})
    named.add_tasks(found.app)
    return found


def start(fleet: Project, *names: str, **options: Any) -> dict[str, Worker]:
    """Workers that run one task each, of these names."""
    return fleet.start_workers(*names, app=APP, concurrency=1, **options)


def node(run: effects.Run) -> str:
    """The name of the worker that made a run, without its host."""
    return run.worker.partition("@")[0]


def test_a_task_runs_on_a_worker_that_it_names_and_on_another_when_that_dies(
    fleet: Project,
) -> None:
    workers = start(fleet, "gpu-a", "gpu-b", "cpu")
    held = [fleet.send("on_gpu", "held") for _ in range(6)]
    first, second = (
        wait_for(lambda: fleet.effects.runs() if len(fleet.effects.runs()) >= 2 else None, 20, "2")
    )[:2]
    # Each has one, and as many wait for each.
    assert {node(first), node(second)} == {"gpu-a", "gpu-b"}

    dead, left = node(first), node(second)
    workers[dead].kill_group()
    fleet.effects.open_gate("held")

    for result in held:
        assert result.get(timeout=30) == "held"
    runs = fleet.effects.runs()
    assert {node(run) for run in runs if run.ended_at is not None} == {left}
    assert len([run for run in runs if run.task_id != first.task_id]) == 5
    # What waited in its own queue is gone from there.
    broker = fleet.redis.client()
    assert [key for key in broker.scan_iter() if dead.encode() in key and b".dq2" in key] == []


def test_it_waits_for_a_worker_that_it_names_and_no_other_runs_it(fleet: Project) -> None:
    fleet.effects.open_gate("open")
    start(fleet, "cpu")
    ledger = reliable_of(fleet.app).ledger
    rather = fleet.send("rather_on_gpu", "open")
    waits = fleet.send("on_gpu", "open")

    # The one that is only preferred is not waited for.
    assert rather.get(timeout=SOON_SECONDS) == "open"
    wait_for(lambda: ledger.named.waiting() == 1, SOON_SECONDS, "one that waits")
    record = ledger.find(waits.id)
    assert record is not None
    assert record.state is State.WAITING
    broker = fleet.redis.client()
    # Somebody moves what waits for another worker into a queue that this one consumes.
    broker.rpush("celery", record.message)
    wait_for(lambda: broker.llen("celery") == 0, SOON_SECONDS, "a look at it")

    gpu = start(fleet, "gpu-a", options=("-Q", "celery"))["gpu-a"]

    assert waits.get(timeout=SOON_SECONDS) == "open"
    assert [node(run) for run in fleet.effects.runs(waits.id)] == ["gpu-a"]
    assert ledger.named.waiting() == 0
    # And what it was sent itself, while it runs another.
    fleet.begin("on_gpu", "held")
    moved = fleet.send("on_gpu", "open")
    (raw,) = wait_for(
        lambda: broker.lrange(f"gpu-a@{gethostname()}.dq2", 0, -1), SOON_SECONDS, "it"
    )
    broker.lpush("celery", raw)
    wait_for(lambda: broker.llen("celery") == 0, SOON_SECONDS, "a look at it")
    fleet.effects.open_gate("held")
    assert moved.get(timeout=SOON_SECONDS) == "open"
    assert [node(run) for run in fleet.effects.runs(moved.id)] == ["gpu-a"]
    # A worker that stops leaves nothing to wait for it.
    fleet.effects.close_gate("held")
    fleet.begin("on_gpu", "held")
    orphan = fleet.send("on_gpu", "open", only_workers="gpu-*")
    os.kill(gpu.pid, signal.SIGTERM)
    fleet.effects.open_gate("held")
    gpu.wait_until_ended()
    start(fleet, "gpu-b")
    assert orphan.get(timeout=SOON_SECONDS) == "open"
    assert [node(run) for run in fleet.effects.runs(orphan.id)] == ["gpu-b"]


#: Tasks that stand in line, with the options of their calls, and where they run.
LINES: list[tuple[str, dict[str, Any], set[str]]] = [
    ("in_line_on_gpu", {}, {"gpu-a", "gpu-b"}),
    ("line_of_all", {"only_workers": "gpu-?"}, {"gpu-a", "gpu-b"}),
    ("line_of_all", {"prefer_workers": "nobody"}, {"gpu-a", "gpu-b", "cpu"}),
    ("places_on_gpu", {}, {"gpu-a", "gpu-b"}),
]


@promise("line-in-order")
def test_a_line_of_tasks_that_name_workers_goes_on_without_a_pass(project: Project) -> None:
    fleet = project.with_settings(
        reliable={"SWEEP_SECONDS": 60, "LEASE_SECONDS": 240, "QUEUED_SECONDS": 420}
    )
    named.add_tasks(fleet.app)
    start(fleet, "gpu-a", "gpu-b", "cpu")
    # Each pass is a minute behind the one before, and there are more tasks than passes till then.
    for number, (name, options, runs_on) in enumerate(LINES):
        # Its name is the object, too.
        gate = f"gate {number}"
        line = [fleet.send(name, gate, **options) for _ in range(7)]
        begun = lambda line=line: any(fleet.effects.runs(one.id) for one in line)  # noqa: E731
        wait_for(begun, SOON_SECONDS, "the first of the line runs")
        fleet.effects.open_gate(gate)
        for result in line:
            assert result.get(timeout=SOON_SECONDS) == gate
        runs = [run for result in line for run in fleet.effects.runs(result.id)]
        assert len(runs) == len(line)
        assert {node(run) for run in runs} <= runs_on
        if name != "places_on_gpu":
            # One after the other.
            runs.sort(key=lambda one: one.started_at)
            assert all((one.ended_at or 0) <= after.started_at for one, after in pairwise(runs))
            assert all(one.ended_at for one in runs)


def ended(fleet: Project) -> Counter[str]:
    """How often each worker has come to the end of the task."""
    runs = fleet.effects.runs()
    return Counter(one.worker.partition("@")[0] for one in runs if one.ended_at is not None)


@pytest.mark.full
def test_each_of_three_runs_it_once_though_two_of_four_are_killed(fleet: Project) -> None:
    workers = start(fleet, "a", "b", "c", "d")
    result = fleet.task("everywhere").run_on(3, args=("held",))
    begun = wait_for(lambda: runs if len(runs := fleet.effects.runs()) == 3 else None, 20, "3 runs")
    assert len({one.worker for one in begun}) == 3

    for one in begun[:2]:
        workers[one.worker.partition("@")[0]].kill_group()

    # The one that is left over takes the place of one of them; the other waits, and says so.
    with Desk(fleet.app) as desk:

        def view() -> views.Run:
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


@pytest.mark.full
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
