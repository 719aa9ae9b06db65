"""Dead letters from one end to the other: how a task becomes one, and what a replay does."""

from __future__ import annotations

from typing import Any

import pytest
from celery import chain, chord
from celery.exceptions import ChordError
from celery.result import AsyncResult

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.desk import Desk
from celery_reliable.operations.messages import REDACTED
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, wait_until_settled
from tests.integration.foreign import element
from tests.integration.letters import put
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
    "protocol 1": element(b'{"task": "project.work", "id": "one", "args": [0]}', headers={}),
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
    assert found["protocol 1"].name == "project.work"
    assert "protocol 1" in found["protocol 1"].exception
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


@pytest.mark.full
def test_a_burial_is_told_and_its_dead_letter_is_replayed(project: Project) -> None:
    first = project.with_settings(reliable={"MAX_LOSSES": 0})
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


@pytest.mark.full
@pytest.mark.parametrize("flag", ["poison", "failing"])
def test_a_chain_goes_on_where_its_member_is_replayed_and_a_chord_stays_failed(
    project: Project, letters: DeadLetters, flag: str
) -> None:
    """The first is lost as often as it may be, the other fails for good at once; both name the gate
    that makes them good.
    """
    project = project.with_settings(reliable={"MAX_LOSSES": 1, "SWEEP_SECONDS": 1})
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
    assert result_of(last.id).result == 15
    for one in dead:
        wait_for(lambda i=one.id: result_of(i).state == "SUCCESS", 20, "its result")
    wait_until_settled(project.redis, 15)
    assert [len(effects.finished(one.id)) for one in (*dead, last)] == [1, 1, 1]
    assert result_of(body.id).state == "FAILURE"
    assert effects.runs(body.id) == []
