"""A worker that dies: what it ran and what it had only fetched runs again elsewhere, within
seconds.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from tests.conftest import Scale
from tests.integration.conftest import ONE_EACH, Project
from tests.integration.figures import wait_until_settled
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for


def worker_of(workers: dict[str, Worker], run: Any) -> str:
    """The name of the worker that a run is on."""
    return next(name for name in workers if run.worker.startswith(f"{name}@"))


@promise("nothing-lost", "never-two")
def test_a_killed_workers_task_runs_again_within_seconds(
    project: Project, workers: dict[str, Worker], scale: Scale
) -> None:
    # Beat is dead all along: the workers' own passes recover.
    waited = []
    for turn in range(scale.of(full=10, small=4)):
        gate = f"gate-{turn}"
        result = project.send("gate", gate)
        first = project.effects.run_of(result.id)
        name = worker_of(workers, first)
        workers[name].kill_group()
        killed_at = project.effects.now()
        second = project.effects.run_of(result.id, 2)
        waited.append(second.started_at - killed_at)
        project.effects.open_gate(gate)
        assert result.get(timeout=10) == gate
        assert second.attempt == 2
        assert worker_of(workers, second) != name
        workers[name] = project.start_worker(name)
    print("seconds from the kill to the re-run:", [round(w, 2) for w in waited])
    assert not project.effects.overlaps()
    assert max(waited) <= 8
    assert statistics.median(waited) <= 5
    wait_until_settled(project.redis, 10)


@pytest.mark.keeps_fetched
@promise("nothing-lost")
def test_what_a_killed_worker_had_only_fetched_runs_elsewhere(project: Project) -> None:
    options = ("--prefetch-multiplier", "4")
    client = project.redis.client()
    worker = project.start_worker("worker-0", options=options)
    waited = []
    for turn in range(1, 4):
        gate = f"gate-{turn}"
        running = [project.send("gate", gate) for _ in range(2)]
        for result in running:
            project.effects.run_of(result.id)
        fetched = [project.send("work", 0.01) for _ in range(6)]
        wait_for(lambda: client.llen("celery") == 0, 10, "all of them fetched")
        survivor = project.start_worker(f"worker-{turn}", options=options)
        worker.kill_group()
        killed_at = project.effects.now()
        # What ran comes first again; it must not keep the survivor's pool from the others.
        project.effects.open_gate(gate)
        for result in running + fetched:
            result.get(timeout=15)
        waited.append(max(project.effects.starts(r.id)[0] for r in fetched) - killed_at)
        # Only what was claimed is a loss: the fetched ones ran once, as attempt 1.
        assert [[run.attempt for run in project.effects.runs(r.id)] for r in running] == [
            [1, 2]
        ] * 2
        assert [[run.attempt for run in project.effects.runs(r.id)] for r in fetched] == [[1]] * 6
        worker = survivor
    print("seconds from the kill to the last fetched task:", [round(w, 2) for w in waited])
    assert max(waited) <= 8
    wait_until_settled(project.redis, 10)


@promise("queued-not-running")
def test_recovery_needs_one_free_process_of_the_survivor(project: Project) -> None:
    # A worker that fetched no more than it runs leaves the third task to the other.
    workers = {name: project.start_worker(name, options=ONE_EACH) for name in ("one", "two")}
    gates = [project.send("gate", f"busy-{n}") for n in range(3)]
    runs = [project.effects.run_of(r.id) for r in gates]
    by_worker = [worker_of(workers, run) for run in runs]
    victim = next(name for name in workers if by_worker.count(name) == 2)
    lost = [r.id for r, name in zip(gates, by_worker, strict=True) if name == victim]
    workers[victim].kill_group()
    killed_at = project.effects.now()
    wait_for(
        lambda: sorted(len(project.effects.runs(i)) for i in lost) == [1, 2],
        20,
        "one of them on the free process",
    )
    again = max(project.effects.starts(i)[-1] for i in lost)
    assert again - killed_at <= 8
    for n in range(3):
        project.effects.open_gate(f"busy-{n}")
    for result in gates:
        result.get(timeout=10)
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)


@promise("queued-not-running")
def test_what_is_lost_is_next_in_its_queue_and_behind_what_waits_when_it_is_lost_again(
    project: Project,
) -> None:
    project.start_worker("sweeps", options=("-Q", "another"))
    client = project.redis.client()
    lost = project.send("gate", "gate").id
    waiting = [project.send("gate", "gate").id for _ in range(3)]
    for number, expected in ((1, [lost, *waiting]), (2, [*waiting, lost])):
        worker = project.start_worker("dies", concurrency=1, options=ONE_EACH)
        wait_for(lambda n=number: len(project.effects.runs(lost)) == n, 15, "it runs")
        worker.kill_group()
        wait_for(lambda: client.llen("celery") == 4, 20, "it is in its queue again")
        queued = [json.loads(one)["headers"]["id"] for one in client.lrange("celery", 0, -1)]
        assert queued[::-1] == expected
    assert {run.task_id for run in project.effects.runs()} == {lost}


@promise("frozen-not-dead", "late-changes-nothing")
def test_a_frozen_worker_is_dead_when_its_lease_has_lapsed(
    project: Project, workers: dict[str, Worker]
) -> None:
    result = project.send("gate", "frozen")
    first = project.effects.run_of(result.id)
    frozen = workers[worker_of(workers, first)]
    frozen.freeze()
    frozen_at = project.effects.now()
    second = project.effects.run_of(result.id, 2)
    # LEASE_SECONDS + 3 * SWEEP_SECONDS
    assert second.started_at - frozen_at <= 16
    # The resumed attempt was taken from it: its process is stopped, and the worker goes on.
    frozen.thaw()
    wait_for(lambda: first.pid not in frozen.children(), 20, "the taken attempt's process is gone")
    project.effects.open_gate("frozen")
    assert result.get(timeout=10) == "frozen"
    assert len(project.effects.finished(result.id)) == 1
    wait_until_settled(project.redis, 10)
