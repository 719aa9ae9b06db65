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

REPLACING = "tests.integration.project.replacing"
HOST = "row-7"


@pytest.mark.parametrize(
    ("name", "shape"),
    [*(("become", shape) for shape in SHAPES), ("become_by_its_own_handler", "chain")],
)
def test_a_periodic_publication_of_the_same_id_changes_nothing(
    project: Project, name: str, shape: str
) -> None:
    project = project.with_settings(reliable=SOON)
    add_tasks(project.app)
    project.start_worker("one", app=REPLACING)
    ledger = reliable_of(project.app).ledger

    def publish() -> None:
        """As a task does that looks for rows without an outcome (the page "Rows and tasks")."""
        project.send(name, shape, task_id=HOST)

    def waits() -> Record | None:
        record = ledger.find(HOST)
        return record if record is not None and record.state is State.WAITING else None

    publish()
    has_first = "first" in SHAPES[shape]
    while has_first and not [r for r in project.effects.runs() if r.object_id == "first"]:
        publish()
    if has_first:
        waiting = wait_for(waits, 10, "its host has ended")
        for _ in range(5):
            publish()
        assert waits() == waiting
        # By these it is told whether the canvas still lives.
        begun = {run.task_id for run in project.effects.runs()} - {HOST}
        assert begun <= set(waiting.members)
        assert HOST not in waiting.members
    project.effects.open_gate("first")

    wait_until_settled(project.redis, 20)
    counts = Counter(run.object_id for run in project.effects.runs())
    assert counts == Counter(["again", *SHAPES[shape]])
    # Its attempts were counted on: the host's first.
    assert max(run.attempt for run in project.effects.runs(HOST)) == len(project.effects.runs(HOST))
    assert not project.redis.client().keys(RECORD + "*")
