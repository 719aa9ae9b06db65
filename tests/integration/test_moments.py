"""The worst moment for a fork: beside a pass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import Project, Start
from tests.integration.project.moments import (
    KILL_WHILE_LOCKED,
)
from tests.integration.project.tasks import Broken
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@pytest.fixture
def start(start_worker: Start) -> Start:
    """Start a worker that is hit when a test says so."""

    def one(name: str = "one", **options: Any) -> Worker:
        return start_worker(name, app="tests.integration.project.moments", **options)

    return one


def first_pid(effects: Effects, task_id: str) -> int:
    """The process of the task's first run, once it has begun."""
    return wait_for(lambda: effects.runs(task_id), 15, f"a run of {task_id}")[0].pid


def test_a_process_that_is_forked_beside_a_pass_hangs_in_none_of_its_locks(
    project: Project, start: Start
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    start(project=project, concurrency=1)
    before = project.send("work", 0.0)
    assert before.get(timeout=15) == "worked"
    pid = first_pid(project.effects, before.id)
    project.effects.client.set(KILL_WHILE_LOCKED, pid)
    wait_for(
        lambda: not project.effects.client.exists(KILL_WHILE_LOCKED), 15, "a pass to kill from"
    )

    # What a task returns is stored with its settlement; a failure goes through Celery's backend.
    after = project.send("failing")

    with pytest.raises(Broken):
        after.get(timeout=15)
    assert first_pid(project.effects, after.id) != pid
