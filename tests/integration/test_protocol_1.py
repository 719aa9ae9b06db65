"""Messages of Celery's first protocol (`task_protocol = 1`): what becomes of those that die."""

from __future__ import annotations

import pytest
from celery import chord

from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.desk import Desk
from tests.integration.conftest import Project
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@pytest.fixture
def first(project: Project) -> Project:
    """The project, whose messages are of protocol 1, and whose first loss is a burial."""
    return project.with_settings(celery={"task_protocol": 1}, reliable={"MAX_LOSSES": 0})


def test_a_burial_is_told_to_errbacks_and_chords(first: Project) -> None:
    first.start_worker("one")
    listed = first.task("listed")
    alone = first.send("poison", link_error=listed.s())
    members = [first.task("poison").si(), first.task("add").si(1, 1)]
    body = chord(members)(listed.s())

    with pytest.raises(Exception, match="lost 1 times"):
        alone.get(timeout=20)
    with pytest.raises(Exception, match="lost 1 times"):
        body.get(timeout=20)
    wait_for(
        lambda: any(run.task == "project.listed" for run in first.effects.runs()), 10, "the errback"
    )


def test_its_dead_letter_is_shown_and_replayed(first: Project) -> None:
    first.start_worker("one")
    sent = first.send("poison_times", 1)
    letters = DeadLetters(first.app)
    wait_for(lambda: letters.count() == 1, 20, "it is buried")
    with Desk(first.app) as desk:
        view = desk.tasks.get(sent.id, with_arguments=True)
    assert (view.name, view.args) == ("project.poison_times", [1])
    assert not letters.replay(sent.id)
    wait_for(lambda: first.effects.finished(sent.id), 20, "its second run")
    assert [run.attempt for run in first.effects.runs(sent.id)] == [1, 2]
