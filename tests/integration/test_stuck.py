"""An attempt taken as stuck keeps what it has to its end, in a pool that cannot stop it."""

from __future__ import annotations

import pytest

from tests.integration.commands import Run
from tests.integration.conftest import SOON, Project
from tests.integration.figures import passes_finish, record_of
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@promise("never-two", "one-object")
def test_neither_its_object_nor_its_id_runs_beside_it(project: Project, run: Run) -> None:
    """It is a dead letter, and discarded; its object and its id are published again."""
    project = project.with_settings(reliable=SOON)
    project.start_worker("one", pool="threads", concurrency=4)
    project.send("stuck_for_good", "object", task_id="one")
    project.effects.run_of("one")
    wait_for(
        lambda: record_of(project.redis, "one").get("state") == "dead", 15, "it is taken as stuck"
    )
    assert run("dead-letters", "discard", "one", "--yes", project=project).code == 0
    project.effects.open_gate("two")
    other = project.send("stuck_for_good", "object", task_id="two")
    project.send("stuck_for_good", "object", task_id="one")
    passes_finish(project.redis, 6, 20)

    assert not project.effects.runs("two")
    assert len(project.effects.runs("one")) == 1
    project.effects.open_gate("one")

    assert other.get(timeout=30) == 1
    again = project.effects.run_of("one", 2, timeout_seconds=30)
    assert again.attempt == 2
    ended_at = project.effects.runs("one")[0].last_seen_at
    assert min(again.started_at, project.effects.runs("two")[0].started_at) > ended_at
    # Nothing stays for ever of what has been stopped.
    client = project.redis.client()
    for kind in ("task:*", "lock:*", "taken:*", "due"):
        wait_for(lambda k=kind: not client.keys("{reliable:0}:" + k), 30, f"nothing of {kind}")
