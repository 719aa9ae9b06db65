"""Dead letters from one end to the other: how a task becomes one, and what can be done with it."""

from __future__ import annotations

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.model import DeadLetter, Reason
from celery_reliable.operations import Desk, Kind
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.messages import REDACTED
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import DUE, RECORD
from tests.integration.letters import put
from tests.support.waiting import wait_for


def buried(letters: DeadLetters, task_id: str, timeout_seconds: float = 20) -> DeadLetter:
    """Wait until the task is a dead letter whose burial owes Celery nothing any more."""

    def found() -> DeadLetter | None:
        try:
            letter = letters.get(task_id)
        except UnknownDeadLetter:
            return None
        return None if letter.is_owed else letter

    return wait_for(found, timeout_seconds, f"{task_id} among the dead letters")  # type: ignore[return-value]


def test_a_task_that_fails_for_good_is_kept_and_runs_again_when_replayed(
    project: Project, letters: DeadLetters, desk: Desk
) -> None:
    project.start_worker("one")
    result = project.send("follow", ["fail", "finish"])
    with pytest.raises(Exception, match="in run 1"):
        result.get(timeout=20)

    letter = buried(letters, result.id)

    assert (letter.name, letter.reason) == ("project.follow", Reason.FAILED)
    assert "Broken" in letter.exception
    assert "in run 1" in letter.exception
    assert "Traceback" in letter.traceback
    assert "tasks.py" in letter.traceback
    assert (letter.attempts, letter.losses) == (1, 0)
    assert [entry.what for entry in letter.history] == ["failed"]
    assert [found.task_id for found in letters.list()] == [result.id]
    view = desk.tasks.get(result.id, arguments=True)
    assert view.args == [["fail", "finish"]]
    assert view.headers["id"] == result.id
    assert view.queue == "celery"

    problem = letters.replay(result.id)

    assert not problem
    wait_for(lambda: project.effects.finished(result.id), 20, "the replayed task")
    assert [run.attempt for run in project.effects.runs(result.id)] == [1, 2]
    wait_for(lambda: project.app.AsyncResult(result.id).state == "SUCCESS", 10, "its result")
    client = project.redis.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "every record gone")
    assert letters.count() == 0
    assert client.zcard(DUE) == 0


def test_a_replayed_task_that_fails_again_is_a_dead_letter_again_with_its_whole_history(
    project: Project, letters: DeadLetters
) -> None:
    project.start_worker("one")
    result = project.send("flaky", 9, 0, 1)
    first = buried(letters, result.id)
    assert first.attempts == 2

    letters.replay(result.id)
    second = wait_for(
        lambda: next((one for one in letters.list() if one.buried_ms > first.buried_ms), None),
        20,
        "the second burial",
    )

    # The retries counted anew: again one retry, and then the end.
    assert second is not None
    assert second.attempts == 4
    life = ["retried", "failed"]
    assert [entry.what for entry in second.history] == [*life, "replayed", *life]
    assert second.published_ms == first.published_ms < second.history[0].at_ms


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


def test_what_no_worker_can_read_is_shown_on_request_and_never_replayed(
    project: Project, letters: DeadLetters, desk: Desk
) -> None:
    project.start_worker("one")
    project.redis.client().lpush("celery", b"no JSON \xff\x1b[31m")

    letter = wait_for(lambda: next(iter(letters.list()), None), 20, "the unreadable message")

    assert letter is not None
    assert letter.reason is Reason.UNPROCESSABLE
    assert desk.tasks.get(letter.task_id).queue == "celery"
    assert desk.tasks.get(letter.task_id).body == REDACTED
    assert desk.tasks.get(letter.task_id, arguments=True).body == r"no JSON \xff\x1b[31m"
    with pytest.raises(CannotReplay, match="discard"):
        letters.replay(letter.task_id)
    letters.discard(letter.task_id)
    assert letters.count() == 0


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
