"""The harness itself, on stock tasks: what it starts is ready, and what it ends is gone."""

from __future__ import annotations

import os
from dataclasses import replace

import psutil
import pytest

from tests.integration.conftest import Project, Start
from tests.integration.project.factory import Settings
from tests.support.processes import CeleryProcess
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    return replace(project_settings, stock=True)


def gone(pids: list[int]) -> bool:
    return all(
        not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        for pid in pids
    )


def test_children_frozen_killed_and_left_behind_are_all_ended(project: Project) -> None:
    worker = project.start_worker("battered", chatty=True)
    sent = project.send("gate", "door")
    run = project.effects.run_of(sent.id)

    worker.freeze()
    frozen_at = wait_for(lambda: project.effects.runs(sent.id)[0].alive_at, 5, "a sign of life")
    assert psutil.Process(run.pid).status() == psutil.STATUS_STOPPED
    worker.thaw()
    wait_for(lambda: project.effects.runs(sent.id)[0].alive_at > frozen_at, 5, "it to go on")

    # reject_on_worker_lost: stock Celery sends the task back when its child dies.
    worker.kill_child(run.pid)
    wait_for(lambda: len(project.effects.starts(sent.id)) == 2, 20, "a second run")
    assert project.effects.overlaps(sent.id) == []
    children = worker.children()
    worker.kill_main()
    worker.end()
    assert gone([worker.pid, *children])


def test_steps_are_followed(project: Project) -> None:
    worker = project.start_worker("obedient", chatty=True, concurrency=1)
    steps = project.send("follow", ["retry", "kill", "finish"])
    assert steps.get(timeout=30) == "run 3"
    assert [run.outcome for run in project.effects.runs(steps.id)] == ["Retry", None, "finished"]
    assert project.send("replaced", [1, 2, 3]).get(timeout=30) == 6
    assert worker.stop() == 0
    assert worker.survivors() == []


def test_a_worker_that_ends_before_it_is_ready_is_reported_with_its_log(
    start_worker: Start, processes: list[CeleryProcess]
) -> None:
    with pytest.raises(AssertionError, match="before it was ready") as caught:
        start_worker("broken", chatty=True, app="tests.integration.project.nowhere")
    assert "nowhere" in str(caught.value)
    assert os.path.getsize(processes[0].log_path)
