"""Tasks defined in every way that users have, in real workers."""

from __future__ import annotations

from functools import partial

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD
from tests.integration.project.defined import KINDS, SPECS, add_tasks
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def worker(project: Project) -> Worker:
    """One worker that knows the tasks."""
    add_tasks(project.app)
    return project.start_worker("one", app="tests.integration.project.defined")


def is_gone(redis_server: RedisServer, task_id: str) -> bool:
    """Whether a task has ended."""
    return not redis_server.client().exists(RECORD + task_id)


def test_every_callable_names_the_object(project: Project, worker: Worker) -> None:
    for kind in KINDS:
        task = project.task(kind)
        held = task.delay({"id": 7}, f"first of {kind}")
        wait_for(partial(project.effects.runs, held.id), 15, f"{kind} runs")
        skipped = task.delay(gate="none", order={"id": 7})
        other = task.delay({"id": 8}, "open")
        project.effects.open_gate("open")
        assert other.get(timeout=15) == "open", kind
        wait_for(partial(is_gone, project.redis, skipped.id), 15, f"{kind} is skipped")
        project.effects.open_gate(f"first of {kind}")
        assert held.get(timeout=15) == f"first of {kind}"
        assert not project.effects.runs(skipped.id), kind


def test_of_unique_calls_one_is_published(project: Project, worker: Worker) -> None:
    for kind in SPECS:
        task = project.task(f"unique_{kind}")
        first = task.delay({"id": 7}, kind)
        assert task.delay({"id": 7}, kind).id == first.id
        assert task.apply_async(kwargs={"gate": kind, "order": {"id": 7}}).id == first.id
        assert task.delay({"id": 8}, kind).id != first.id
        project.effects.open_gate(kind)
        assert first.get(timeout=15) == kind
        assert len(project.effects.runs(first.id)) == 1
