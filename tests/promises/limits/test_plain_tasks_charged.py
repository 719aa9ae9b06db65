"""Of plain tasks nobody knows what they did.

Each death of a worker that held the message of a plain task with ``acks_late`` counts as a loss.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.promises.conftest import Letters
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for


@promise("plain-tasks-charged")
def test_a_plain_task_that_takes_its_workers_along_is_stopped(
    project: Project, letters: Letters
) -> None:
    """The task that waited behind it is not charged."""
    project = project.with_settings(reliable={"MAX_LOSSES": 1})

    def start(name: str) -> Worker:
        return project.start_worker(name, concurrency=1)

    first = start("one")
    result = project.begin("plain_late", "gate")
    waiting = project.send("plain_work", 0.01)
    for number, name in ((1, "two"), (2, "three")):
        project.effects.run_of(result.id, number)
        first.kill_group()
        first = start(name)
    wait_for(letters, 20, "it is a dead letter")
    assert waiting.get(timeout=15) == "worked"
    assert {i: one["reason"] for i, one in letters().items()} == {result.id: "lost"}
    assert len(project.effects.runs(result.id)) == 2
    assert project.app.conf.task_acks_late is False
    client = project.redis.client()
    wait_for(lambda: not client.keys("unacked:*"), 10, "no unacked hash is left")
