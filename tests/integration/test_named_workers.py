"""Tasks that name the workers which may run them: real workers, that die, come and are renamed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import Any

import pytest
from celery.utils.nodenames import gethostname

from celery_reliable.app import reliable_of
from celery_reliable.message import Envelope, NamedWorkers
from celery_reliable.model import State
from celery_reliable.operations.desk import Desk
from tests.integration.commands import Run
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


@pytest.mark.full
def test_a_live_task_is_moved_and_what_runs_elsewhere_is_stopped_without_a_loss(
    fleet: Project, run: Run
) -> None:
    start(fleet, "cpu", "gpu-a")
    fleet.effects.close_gate("held")
    runs_there = fleet.send("gate", "held", only_workers="cpu")
    waits = fleet.send("gate", "held", only_workers="cpu")
    first = fleet.effects.run_of(runs_there.id)
    assert node(first) == "cpu"
    ids = [runs_there.id, waits.id, "nobody"]

    told = run("move", *ids, "--workers", "gpu-*", "--json", project=fleet)

    moved = {"stopped": [runs_there.id], "sent": [waits.id], "gone": ["nobody"]}
    assert moved.items() <= told.json.items()
    second = wait_for(
        lambda: [one for one in fleet.effects.runs() if node(one) == "gpu-a"], SOON_SECONDS, "one"
    )[0]
    ledger = reliable_of(fleet.app).ledger

    def is_stopped() -> bool:
        record = ledger.find(runs_there.id)
        return record is not None and not record.owner.startswith("cpu@") and not record.stopping_on

    # It may be behind the other one, there.
    wait_for(is_stopped, SOON_SECONDS, "it is stopped")
    if second.task_id == runs_there.id:
        assert first.last_seen_at <= second.started_at
    fleet.effects.open_gate("held")
    for one in (runs_there, waits):
        assert one.get(timeout=SOON_SECONDS) == "held"
    ended = [one for one in fleet.effects.runs() if one.ended_at is not None]
    assert {one.task_id: node(one) for one in ended} == dict.fromkeys(
        (runs_there.id, waits.id), "gpu-a"
    )
    with Desk(fleet.app) as desk:
        assert desk.tasks.get(runs_there.id).losses == 0
        act = desk.audit()[0]
    assert (act.act, act.phase, act.done) == ("move", "end", 2)

    # What is moved while it runs where it may goes on, and its retry is for those that were named.
    retried = fleet.begin("retried_at_gate", "retry", only_workers="cpu")
    run("move", retried.id, "--workers", "cpu", "--workers", "gpu-*", project=fleet)
    fleet.effects.open_gate("retry")
    fleet.effects.run_of(retried.id, 2)
    record = reliable_of(fleet.app).ledger.find(retried.id)
    assert record is not None
    named = NamedWorkers.of(Envelope.from_text(record.message).headers)
    assert named is not None
    assert named.only == ("cpu", "gpu-*")
