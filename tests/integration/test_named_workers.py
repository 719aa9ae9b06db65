"""Tasks that name the workers which may run them: real workers, that die, come and are renamed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import State
from tests.integration.conftest import ONE_EACH, Project
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
    options["options"] = (*ONE_EACH, *options.get("options", ()))
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
    assert record.state is State.PARKED
    broker = fleet.redis.client()
    # Somebody moves what waits for another worker into a queue that this one consumes.
    broker.rpush("celery", record.message)
    wait_for(lambda: broker.llen("celery") == 0, SOON_SECONDS, "a look at it")

    gpu = start(fleet, "gpu-a", options=("-Q", "celery"))["gpu-a"]

    assert waits.get(timeout=SOON_SECONDS) == "open"
    assert [node(run) for run in fleet.effects.runs(waits.id)] == ["gpu-a"]
    assert ledger.named.waiting() == 0
    # A worker that stops leaves nothing to wait for it.
    last = fleet.send("on_gpu", "held")
    fleet.effects.run_of(last.id)
    orphan = fleet.send("on_gpu", "open", only_workers="gpu-*")
    os.kill(gpu.pid, signal.SIGTERM)
    fleet.effects.open_gate("held")
    gpu.wait_until_ended()
    start(fleet, "gpu-b")
    assert orphan.get(timeout=SOON_SECONDS) == "open"
    assert [node(run) for run in fleet.effects.runs(orphan.id)] == ["gpu-b"]


@pytest.mark.parametrize(
    ("name", "options", "runs_on"),
    [
        ("in_line_on_gpu", {}, {"gpu-a", "gpu-b"}),
        ("line_of_all", {"prefer_workers": "nobody"}, {"gpu-a", "gpu-b", "cpu"}),
        ("places_on_gpu", {}, {"gpu-a", "gpu-b"}),
    ],
)
@promise("line-in-order")
def test_a_line_of_tasks_that_name_workers_goes_on_without_a_pass(
    project: Project, name: str, options: dict[str, Any], runs_on: set[str]
) -> None:
    fleet = project.with_settings(
        reliable={"SWEEP_SECONDS": 60, "LEASE_SECONDS": 240, "QUEUED_SECONDS": 420}
    )
    named.add_tasks(fleet.app)
    start(fleet, "gpu-a", "gpu-b", "cpu")
    # Each pass is a minute behind the one before, and there are more tasks than passes till then.
    line = [fleet.send(name, "held", **options) for _ in range(7)]
    wait_for(fleet.effects.runs, SOON_SECONDS, "the first of the line runs")
    fleet.effects.open_gate("held")

    for result in line:
        assert result.get(timeout=SOON_SECONDS) == "held"
    runs = [run for result in line for run in fleet.effects.runs(str(result.id))]
    assert len(runs) == len(line)
    assert {node(run) for run in runs} <= runs_on
    if name != "places_on_gpu":
        # One after the other.
        runs.sort(key=lambda one: one.started_at)
        assert all((one.ended_at or 0) <= after.started_at for one, after in pairwise(runs))
        assert all(one.ended_at for one in runs)
