"""A member of a canvas becomes a dead letter: who is told, and what a replay sets going again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import chain, chord
from celery.exceptions import ChordError
from celery.result import AsyncResult

from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.integration.project.factory import Settings
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


@pytest.mark.parametrize("flag", FLAGS)
def test_a_chain_goes_on_where_its_member_is_replayed_and_a_chord_stays_failed(
    project: Project, letters: DeadLetters, flag: str
) -> None:
    project.start_worker("one")
    effects, task = project.effects, project.task
    step, error = task("step"), task("on_error").s()

    def result_of(task_id: str) -> AsyncResult[Any]:
        return project.app.AsyncResult(task_id)

    def is_buried(task_id: str) -> bool:
        """Whether it is a dead letter whose burial owes Celery nothing any more."""
        try:
            return not letters.get(task_id).is_owed
        except UnknownDeadLetter:
            return False

    def errbacks() -> list[bytes]:
        return effects.client.lrange("errbacks", 0, -1)  # type: ignore[return-value]

    members = chain(step.s(1, 1), task("at_flag").si(flag, 5), step.s(10))
    last = members.apply_async(link_error=error)
    header = [step.s(1, 1), task("at_flag").si(flag, 5), step.s(2, 2)]
    body = chord(header, task("gather").s().on_error(error)).apply_async()
    dead = last.parent, body.parent.results[1]
    # Nobody waits in vain: the member failed, and so did what was to follow it.
    for result in (last, body):
        with pytest.raises(Exception, match=r"not open|lost 2 times"):
            result.get(timeout=20)
    with pytest.raises(ChordError, match=r"not open|lost 2 times"):
        result_of(body.id).get(timeout=20)
    for one in dead:
        wait_for(lambda i=one.id: is_buried(i), 20, "a dead letter")
        assert result_of(one.id).state == "FAILURE"
    for failed in (dead[0].id, body.id):
        wait_for(lambda i=failed: i.encode() in errbacks(), 10, "its errback")
    assert effects.runs(last.id) == []

    effects.open_gate(flag)
    for one in dead:
        assert not letters.replay(one.id)

    # The chain goes on.  The chord had ended, and is not begun anew.
    wait_for(lambda: result_of(last.id).state == "SUCCESS", 20, "the end of the chain")
    assert result_of(last.id).get(timeout=5) == 15
    for one in dead:
        wait_for(lambda i=one.id: result_of(i).state == "SUCCESS", 20, "its result")
    wait_until_settled(project.redis, 15)
    assert [len(effects.finished(one.id)) for one in (*dead, last)] == [1, 1, 1]
    assert result_of(body.id).state == "FAILURE"
    assert effects.runs(body.id) == []
