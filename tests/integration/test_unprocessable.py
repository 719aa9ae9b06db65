"""A message that no worker can run is a dead letter, and runs when one can."""

from __future__ import annotations

from typing import Any

import pytest

from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, wait_until_settled
from tests.integration.foreign import element
from tests.integration.project.awkward import add_tasks
from tests.support.waiting import wait_for

AWKWARD = "tests.integration.project.awkward"


BAD = {
    "unknown task": element(headers={"task": "project.nowhere"}),
    "undecodable body": element(b"\x00{"),
    "content type": element(content_type="application/x-python-serialize"),
    "unknown content type": element(content_type="application/x-what"),
    "no headers": element(headers=None),
    "no task": element(headers={"task": None}),
    "task of another kind": element(headers={"task": ["project.work"]}),
    "id of another kind": element(headers={"id": {}}),
    "no id": element(headers={"id": None}),
    "eta": element(headers={"eta": "when it suits"}),
    "expires": element(headers={"expires": "when it suits"}),
    "no list": element(b"7"),
}


def test_what_cannot_be_run_is_kept_and_holds_up_nobody(
    project: Project, letters: DeadLetters
) -> None:
    client = project.redis.client()
    worker = project.start_worker("one")
    found: dict[str, Any] = {}
    for number, (what, bad) in enumerate(BAD.items(), start=1):
        client.lpush("celery", bad)
        wait_for(lambda n=number: client.zcard(DEAD) == n, 15, f"{what} is a dead letter")
        found[what] = letters.list(limit=1)[0]
        assert project.send("work", 0).get(timeout=10) == "worked", what
    assert worker.is_running
    wait_for(lambda: not client.keys("unacked*"), 10, "no unacked hash is left")
    reasons = {what: letter.reason.value for what, letter in found.items()}
    assert set(reasons.values()) <= {"unprocessable", "failed"}
    assert reasons["unknown task"] == reasons["undecodable body"] == "unprocessable"
    assert all(letter.exception for letter in found.values())
    assert "project.nowhere" in found["unknown task"].exception


def test_wrong_arguments_are_a_failure_like_any_other(
    project: Project, letters: DeadLetters
) -> None:
    project.start_worker("one")
    project.redis.client().lpush("celery", element(b"[[], {}, {}]"))
    wait_for(letters.count, 15, "a dead letter")
    (letter,) = letters.list()
    assert (letter.reason.value, letter.attempts) == ("failed", 1)
    assert "TypeError" in letter.exception


@pytest.mark.full
def test_it_runs_when_the_code_is_there(project: Project, letters: DeadLetters) -> None:
    project.effects.open_gate("gate")
    add_tasks(project.app)
    old = project.start_worker("old")
    result = project.send("silent", 0)
    wait_for(letters.count, 15, "a dead letter")
    assert letters.get(result.id).reason.value == "unprocessable"
    assert old.stop() == 0
    project.start_worker("new", app=AWKWARD, environ={"C_FORCE_ROOT": "yes"})
    letters.replay(result.id)
    wait_for(lambda: project.effects.finished(result.id), 15, "it ran")
    wait_until_settled(project.redis, 15)
    assert len(project.effects.runs(result.id)) == 1
