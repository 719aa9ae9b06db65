"""An attempt taken as stuck keeps what it has to its end, in a pool that cannot stop it."""

from __future__ import annotations

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import State
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import SOON, Project
from tests.integration.figures import passes_finish
from tests.integration.project.timed import add_tasks
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

TIMED = "tests.integration.project.timed"
LEFT = "{reliable:0}:"


@promise("never-two", "one-object")
@pytest.mark.parametrize("how", ["discarded", "revoked"])
def test_neither_its_object_nor_its_id_runs_beside_it(project: Project, how: str) -> None:
    project = project.with_settings(reliable=SOON)
    add_tasks(project.app)
    client, ledger = project.redis.client(), reliable_of(project.app).ledger
    project.start_worker("one", app=TIMED, pool="threads", concurrency=4)
    name = "stuck" if how == "revoked" else "stuck_for_good"
    project.send(name, "object", task_id="one")
    wait_for(lambda: project.effects.runs("one"), 10, "it runs")
    state = State.QUEUED if how == "revoked" else State.DEAD

    def is_taken() -> bool:
        record = ledger.find("one")
        return record is not None and record.state is state

    wait_for(is_taken, 15, "it is taken as stuck")
    if how == "discarded":
        DeadLetters(project.app).discard("one")
    elif how == "revoked":
        project.app.control.revoke("one")
        wait_for(lambda: not is_taken(), 10, "it is called off")
    again = name if how != "revoked" else "stuck_for_good"
    project.effects.open_gate("two")
    other = project.send(name, "object", task_id="two")
    anew = "one"
    if how == "discarded":
        project.send(again, "object", task_id=anew)
    passes_finish(project.redis, 6, 20)

    assert not project.effects.runs("two")
    assert len(project.effects.runs("one")) == 1
    project.effects.open_gate("one")

    assert other.get(timeout=30) == 1
    if how == "discarded":
        wait_for(lambda: len(project.effects.runs("one")) == 2, 30, "its id runs")
        assert project.effects.runs("one")[1].attempt == 2
        assert (
            project.effects.runs("one")[1].started_at > project.effects.runs("one")[0].last_seen_at
        )
    assert project.effects.runs("two")[0].started_at > project.effects.runs("one")[0].last_seen_at
    # Nothing stays for ever of what has been stopped.
    for kind in ("task:*", "lock:*", "taken:*", "due"):
        wait_for(lambda k=kind: not client.keys(LEFT + k), 30, f"nothing of {kind}")
