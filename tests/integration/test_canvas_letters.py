"""A member of a canvas becomes a dead letter: who is told, and what a replay sets going again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import chain, chord
from celery.exceptions import ChordError

from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.integration.project.canvases import add_tasks
from tests.integration.project.factory import Settings
from tests.support.effects import Effects
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

# Poison is lost as often as it may be; the other fails for good at once. Both name the gate that
# makes them good.
FLAGS = ("poison", "failing")

Task = Callable[[str], Any]


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """A task may be lost once."""
    return replace(project_settings, reliable={"MAX_LOSSES": 1, "SWEEP_SECONDS": 1})


@pytest.fixture
def task(project: Project) -> Task:
    """The project's tasks by name, with a worker that runs them."""
    add_tasks(project.app)
    project.start_worker("one", app="tests.integration.project.canvases")
    return project.task


def wait_until_buried(letters: DeadLetters, task_id: str) -> None:
    """Wait until the task is a dead letter whose burial owes Celery nothing any more."""

    def is_buried() -> bool:
        try:
            return not letters.get(task_id).is_owed
        except UnknownDeadLetter:
            return False

    wait_for(is_buried, 20, f"{task_id} among the dead letters")


def errbacks(effects: Effects) -> list[str]:
    """The ids that `link_error` was called for."""
    return [found.decode() for found in effects.client.lrange("errbacks", 0, -1)]


def state_of(project: Project, task_id: str) -> str:
    return str(project.app.AsyncResult(task_id).state)


def replay(effects: Effects, letters: DeadLetters, flag: str, task_id: str) -> None:
    """Replay the letter, now that its cause is gone, and see it run to its end."""
    effects.open_gate(flag)
    assert not letters.replay(task_id)
    wait_for(lambda: effects.finished(task_id), 20, "the replayed member")


@pytest.mark.parametrize("flag", FLAGS)
def test_a_chain_goes_on_where_its_member_is_replayed(
    project: Project, task: Task, letters: DeadLetters, flag: str
) -> None:
    step, error = task("step"), task("on_error").s()
    members = chain(step.s(1, 1), task("at_flag").si(flag, 5), step.s(10))
    result = members.apply_async(link_error=error)
    dead, last = result.parent, result
    wait_until_buried(letters, dead.id)
    # Nobody waits in vain: the member failed, and so did what was to follow it.
    assert state_of(project, dead.id) == "FAILURE"
    with pytest.raises(Exception, match=r"not open|lost 2 times"):
        last.get(timeout=10)
    wait_for(lambda: dead.id in errbacks(project.effects), 10, "its errback")
    assert project.effects.runs(last.id) == []

    replay(project.effects, letters, flag, dead.id)

    wait_for(lambda: state_of(project, last.id) == "SUCCESS", 20, "the end of the chain")
    assert project.app.AsyncResult(last.id).get(timeout=5) == 15
    assert state_of(project, dead.id) == "SUCCESS"
    wait_until_settled(project.redis, 15)
    assert [len(project.effects.finished(one)) for one in (dead.id, last.id)] == [1, 1]


@pytest.mark.parametrize("flag", FLAGS)
def test_a_chord_fails_and_stays_so_when_its_member_is_replayed(
    project: Project, task: Task, letters: DeadLetters, flag: str
) -> None:
    header = [task("step").s(1, 1), task("at_flag").si(flag, 5), task("step").s(2, 2)]
    body = task("gather").s().on_error(task("on_error").s())
    result = chord(header, body).apply_async()
    dead = result.parent.results[1]
    # It does not wait in silence.
    with pytest.raises(Exception, match=r"not open|lost 2 times"):
        result.get(timeout=20)
    with pytest.raises(ChordError, match=r"not open|lost 2 times"):
        project.app.AsyncResult(result.id).get(timeout=20)
    wait_until_buried(letters, dead.id)
    assert state_of(project, dead.id) == "FAILURE"
    wait_for(lambda: result.id in errbacks(project.effects), 10, "the errback of the body")

    replay(project.effects, letters, flag, dead.id)

    # The member is done now. Its chord had ended, and is not begun anew.
    wait_for(lambda: state_of(project, dead.id) == "SUCCESS", 20, "its result")
    wait_until_settled(project.redis, 15)
    assert state_of(project, result.id) == "FAILURE"
    assert project.effects.runs(result.id) == []
