"""An attempt taken as stuck keeps what it has to its end, in a pool that cannot stop it."""

from __future__ import annotations

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import State
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import SOON, Project, Start
from tests.integration.figures import passes_finish
from tests.integration.project.timed import add_tasks
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

TIMED = "tests.integration.project.timed"
LEFT = "{reliable:0}:"


@promise("never-two", "one-object")
@pytest.mark.parametrize("how", ["buried", "discarded", "revoked"])
def test_neither_its_object_nor_its_id_runs_beside_it(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer, how: str
) -> None:
    project = project.with_settings(reliable=SOON)
    add_tasks(project.app)
    client, ledger = redis_server.client(), reliable_of(project.app).ledger
    start_worker("one", project=project, app=TIMED, pool="threads", concurrency=4)
    name = "stuck" if how == "revoked" else "stuck_for_good"
    project.send(name, "object", task_id="one")
    wait_for(lambda: effects.runs("one"), 10, "it runs")
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
    effects.open_gate("two")
    other = project.send(name, "object", task_id="two")
    anew = "one"
    if how == "discarded":
        project.send(again, "object", task_id=anew)
    passes_finish(redis_server, 6, 20)

    assert not effects.runs("two")
    assert len(effects.runs("one")) == 1
    effects.open_gate("one")

    assert other.get(timeout=30) == 1
    if how == "discarded":
        wait_for(lambda: len(effects.runs("one")) == 2, 30, "its id runs")
        assert effects.runs("one")[1].attempt == 2
        assert effects.runs("one")[1].started_at > effects.runs("one")[0].last_seen_at
    assert effects.runs("two")[0].started_at > effects.runs("one")[0].last_seen_at
    if how == "buried":
        DeadLetters(project.app).discard("one")
    # Nothing stays for ever of what has been stopped.
    for kind in ("task:*", "lock:*", "taken:*", "due"):
        wait_for(lambda k=kind: not client.keys(LEFT + k), 30, f"nothing of {kind}")
