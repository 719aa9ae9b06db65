"""An operator ends tasks that live, and a worker does as it is told."""

from __future__ import annotations

import json

import celery
from click.testing import Result

from celery_reliable.operations import Desk, IfRunning
from tests.integration.commands import Run, invoke
from tests.integration.conftest import ONE_EACH, Project
from tests.support.promises import promise
from tests.support.waiting import wait_for

#: Short, so that what is parked would be sent within the test.
TIMES = {"SWEEP_SECONDS": 0.5, "ETA_HORIZON_SECONDS": 1}
PARKED_SECONDS = 6


def command(project: Project, *arguments: str) -> Result:
    return invoke(project.app, "revoke", *arguments)


@promise("revocations")
def test_what_an_operator_revokes_never_runs_or_stops_and_never_comes_back(
    project: Project,
) -> None:
    hasty = project.with_settings(reliable=TIMES)
    hasty.start_worker("one", options=ONE_EACH)
    stopped = hasty.begin("locked_gate", "contract 7", "shut")
    killed = hasty.begin("gate", "shut")
    queued = hasty.send("work", 0)
    parked = hasty.send("work", 0, countdown=PARKED_SECONDS)
    after = hasty.send("work", 0, countdown=PARKED_SECONDS + 0.5)
    ids = (stopped.id, queued.id, parked.id)

    asked = command(hasty, *ids)
    assert asked.exit_code == 1
    assert asked.output.startswith("Revoke 3 tasks (1 running: stop) for good? [y/N]:")
    tried = json.loads(command(hasty, *ids, "--dry-run", "--json").output)
    assert (tried["done"], tried["ended"]) == (3, [queued.id, parked.id])
    with Desk(hasty.app) as desk:
        assert {desk.tasks.get(one).state for one in ids} == {"running", "queued", "parked"}
        done = json.loads(command(hasty, *ids, "--yes", "--json").output)
        assert (done["ended"], done["running"]) == ([queued.id, parked.id], [stopped.id])
        kill = desk.revocations.revoke([killed.id], by="me", if_running=IfRunning.KILL)
        assert kill.running == (killed.id,)

        # The worker has both slots again, and no object is left.
        hasty.send("locked_gate", "contract 7", "open")
        project.effects.open_gate("open")
        after.get(timeout=30)
        everybody = [*ids, killed.id]
        wait_for(
            lambda: not any(desk.tasks.get(one).is_known for one in everybody), 20, "their end"
        )
        assert {desk.tasks.get(one).outcome for one in (queued.id, parked.id)} == {"REVOKED"}
        assert desk.letters.count() == 0
        again = command(hasty, *ids, "--yes")
        assert (again.exit_code, again.output.splitlines()[0]) == (1, "0 tasks revoked")
    for result in (stopped, killed, queued, parked):
        assert result.state == "REVOKED"
    assert [len(project.effects.runs(one)) for one in everybody] == [1, 0, 0, 1]
    assert not any(project.effects.finished(one) for one in everybody)


def test_what_may_finish_is_not_stopped(shared: Project, desk: Desk) -> None:
    result = shared.begin("gate", "door")

    found = desk.revocations.revoke([result.id], by="me", if_running=IfRunning.FINISH)

    assert found.running == (result.id,)
    shared.effects.open_gate("door")
    wait_for(lambda: shared.effects.finished(result.id), 20, "it has finished")
    if celery.VERSION >= (5, 7):
        # Before that Celery itself stores REVOKED for what runs.
        assert result.get(timeout=20) == "door"


def test_revoking_needs_the_ledger_alone(project: Project, run: Run) -> None:
    waiting = project.send("work", 0)
    dead_port = project.with_settings(
        broker_url="amqp://u:s3cret@127.0.0.1:1//", reliable={"REDIS_URL": project.redis.url()}
    )

    told = run("revoke", waiting.id, "--yes", project=dead_port)

    assert told.code == 0
    assert told.out.splitlines()[0] == "1 task revoked"
    assert "s3cret" not in told.err
    with Desk(project.app) as desk:
        assert not desk.tasks.get(waiting.id).is_known
        assert not desk.audit()[0].problem
