"""The id of a task that replaced itself is its canvas's, whoever else publishes it meanwhile."""

from __future__ import annotations

from collections import Counter

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import Record, State
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD, wait_until_settled
from tests.integration.project.replacing import SHAPES, add_tasks
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

REPLACING = "tests.integration.project.replacing"
CASES = [*(("become", shape) for shape in SHAPES), ("become_by_its_own_handler", "chain")]


def test_a_periodic_publication_of_the_same_id_changes_nothing(project: Project) -> None:
    project = project.with_settings(reliable=SOON)
    add_tasks(project.app)
    project.start_worker("one", app=REPLACING)
    for number, (name, shape) in enumerate(CASES):
        replace_itself(project, f"row-{number}", name, shape)
        project.effects.clear()


def replace_itself(project: Project, host: str, name: str, shape: str) -> None:
    """Publish the host's id again and again, while it replaces itself by a canvas of that shape."""
    ledger = reliable_of(project.app).ledger

    def publish() -> None:
        """As a task does that looks for rows without an outcome (the page "Rows and tasks")."""
        project.send(name, shape, task_id=host)

    def waits() -> Record | None:
        record = ledger.find(host)
        return record if record is not None and record.state is State.WAITING else None

    publish()
    has_first = "first" in SHAPES[shape]
    while has_first and not [r for r in project.effects.runs() if r.object_id == "first"]:
        publish()
    if has_first:
        waiting = wait_for(waits, 10, "its host has ended")
        for _ in range(5):
            publish()
        assert waits() == waiting, shape
        # By these it is told whether the canvas still lives.
        begun = {run.task_id for run in project.effects.runs()} - {host}
        assert begun <= set(waiting.members), shape
        assert host not in waiting.members
    project.effects.open_gate("first")

    wait_until_settled(project.redis, 20)
    counts = Counter(run.object_id for run in project.effects.runs())
    assert counts == Counter(["again", *SHAPES[shape]]), shape
    # Its attempts were counted on: the host's first.
    assert max(run.attempt for run in project.effects.runs(host)) == len(project.effects.runs(host))
    assert not project.redis.client().keys(RECORD + "*")
