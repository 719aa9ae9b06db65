"""Tasks defined in every way that users have, in real workers."""

from __future__ import annotations

from functools import partial

from tests.integration.conftest import Project
from tests.integration.project.defined import KINDS, add_tasks
from tests.support.waiting import wait_for


def test_every_callable_names_the_object(project: Project) -> None:
    add_tasks(project.app)
    project.start_worker("one", app="tests.integration.project.defined")
    for kind in KINDS:
        task = project.task(kind)
        held = task.delay({"id": 7}, f"first of {kind}")
        wait_for(partial(project.effects.runs, held.id), 15, f"{kind} runs")
        skipped = task.delay(gate="none", order={"id": 7})
        other = task.delay({"id": 8}, "open")
        project.effects.open_gate("open")
        assert other.get(timeout=15) == "open", kind
        assert skipped.get(timeout=15) == {"skipped": held.id}, kind
        project.effects.open_gate(f"first of {kind}")
        assert held.get(timeout=15) == f"first of {kind}"
        assert not project.effects.runs(skipped.id), kind
