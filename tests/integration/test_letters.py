"""Dead letters from one end to the other: how a task becomes one, and what can be done with it."""

from __future__ import annotations

import pytest
from celery import chord

from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk, Kind
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.messages import REDACTED
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.letters import put
from tests.support.waiting import wait_for


def test_a_replay_while_the_broker_is_away_is_left_to_the_sweeper(
    project: Project, start_redis: StartRedis
) -> None:
    ledger_server = start_redis()
    split = project.with_settings(
        broker_url="redis://127.0.0.1:1/0", reliable={"REDIS_URL": ledger_server.url()}
    )
    put(split, "patient")
    letters = DeadLetters(split.app)

    problem = letters.replay("patient")

    assert "127.0.0.1:1" in problem
    record = reliable_of(split.app).ledger.find("patient")
    assert record is not None
    assert record.state.value == "queued"
    assert ledger_server.client().zscore("{reliable:0}:due", "patient")
    split.close()


def test_arguments_are_redacted_wherever_they_stand(
    project: Project, letters: DeadLetters, desk: Desk
) -> None:
    put(
        project,
        "private",
        argsrepr="('secret-1',)",
        kwargsrepr="{'pin': 'secret-2'}",
        stamps={"customer": "secret-3"},
        customer="secret-4",
    )

    hidden = desk.tasks.get("private")
    assert "secret" not in str(hidden)
    assert "secret" not in str(desk.tasks.page(state=Kind.DEAD))
    assert hidden.args == hidden.kwargs == REDACTED
    shown = desk.tasks.get("private", arguments=True)
    assert shown.headers["customer"] == "secret-4"
    assert (shown.args, shown.kwargs) == ([0.01], {})


@pytest.mark.full
def test_a_burial_is_told_and_its_dead_letter_is_replayed(project: Project) -> None:
    """Of messages of Celery's first protocol (`task_protocol = 1`), too."""
    first = project.with_settings(celery={"task_protocol": 1}, reliable={"MAX_LOSSES": 0})
    first.start_worker("one")
    listed = first.task("listed")
    alone = first.send("poison_times", 1, link_error=listed.s())
    members = [first.task("poison").si(), first.task("add").si(1, 1)]
    body = chord(members)(listed.s())

    for result in (alone, body):
        with pytest.raises(Exception, match="lost 1 times"):
            result.get(timeout=20)
    wait_for(
        lambda: any(run.task == "project.listed" for run in first.effects.runs()), 10, "the errback"
    )
    with Desk(first.app) as desk:
        view = desk.tasks.get(alone.id, arguments=True)
    assert (view.name, view.args) == ("project.poison_times", [1])
    assert not DeadLetters(first.app).replay(alone.id)
    wait_for(lambda: first.effects.finished(alone.id), 20, "its second run")
    assert [run.attempt for run in first.effects.runs(alone.id)] == [1, 2]
