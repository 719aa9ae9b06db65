"""Messages of Celery's first protocol (`task_protocol = 1`): what becomes of those that die."""

from __future__ import annotations

import pytest
from celery import chord

from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.desk import Desk
from tests.integration.conftest import Project
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_a_burial_is_told_and_its_dead_letter_is_replayed(project: Project) -> None:
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
