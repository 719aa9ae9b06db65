"""A message that no worker can run is a dead letter, and runs when one can."""

from __future__ import annotations

from typing import Any

import pytest

from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.messages import REDACTED
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, wait_until_settled
from tests.integration.foreign import element
from tests.integration.project import pooled
from tests.support.waiting import wait_for

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
    "wrong arguments": element(b"[[], {}, {}]"),
    "no list": element(b"7"),
    "no JSON": b"no JSON \xff\x1b[31m",
}


def test_what_cannot_be_run_is_kept_and_holds_up_nobody(
    shared: Project, letters: DeadLetters, desk: Desk
) -> None:
    client = shared.redis.client()
    found: dict[str, Any] = {}
    for number, (what, bad) in enumerate(BAD.items(), start=1):
        client.lpush("celery", bad)
        wait_for(lambda n=number: client.zcard(DEAD) == n, 15, f"{what} is a dead letter")
        found[what] = letters.list(limit=1)[0]
        assert shared.send("work", 0).get(timeout=10) == "worked", what
    wait_for(lambda: not client.keys("unacked*"), 10, "no unacked hash is left")
    reasons = {what: letter.reason.value for what, letter in found.items()}
    assert set(reasons.values()) <= {"unprocessable", "failed"}
    assert reasons["unknown task"] == reasons["undecodable body"] == "unprocessable"
    assert all(letter.exception for letter in found.values())
    assert "project.nowhere" in found["unknown task"].exception
    wrong = found["wrong arguments"]
    assert (wrong.reason.value, wrong.attempts) == ("failed", 1)
    assert "TypeError" in wrong.exception
    # What nobody can read is shown on request, and never replayed.
    unread = found["no JSON"].task_id
    assert (desk.tasks.get(unread).queue, desk.tasks.get(unread).body) == ("celery", REDACTED)
    assert desk.tasks.get(unread, arguments=True).body == r"no JSON \xff\x1b[31m"
    with pytest.raises(CannotReplay, match="discard"):
        letters.replay(unread)
    letters.discard(unread)
    assert letters.count() == len(BAD) - 1


@pytest.mark.full
def test_it_runs_when_the_code_is_there(project: Project, letters: DeadLetters) -> None:
    pooled.add_tasks(project.app)
    old = project.start_worker("old")
    result = project.send("spin", 0)
    wait_for(letters.count, 15, "a dead letter")
    assert letters.get(result.id).reason.value == "unprocessable"
    assert old.stop() == 0
    project.start_worker("new", app="tests.integration.project.pooled")
    letters.replay(result.id)
    wait_for(lambda: project.effects.finished(result.id), 15, "it ran")
    wait_until_settled(project.redis, 15)
    assert len(project.effects.runs(result.id)) == 1
