"""Tasks as users write them: what they override must not switch the protection off."""

from __future__ import annotations

import pytest
from celery.exceptions import TaskRevokedError, TimeLimitExceeded

from celery_reliable.deadletters import DeadLetters
from celery_reliable.model import Reason
from tests.integration.conftest import Project, Start
from tests.integration.project.awkward import add_tasks
from tests.support.effects import Effects
from tests.support.load import Load
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def awkward(project: Project) -> Project:
    """The project with the awkward tasks."""
    project = project.with_settings(
        celery={"accept_content": ["json", "pickle"], "task_compression": "zlib"}
    )
    add_tasks(project.app)
    return project


@pytest.fixture
def worker(awkward: Project, start_worker: Start) -> Worker:
    """One worker that knows them."""
    return start_worker(
        "one",
        app="tests.integration.project.awkward",
        project=awkward,
        # Celery refuses pickle as root, which tests in containers often run as.
        environ={"C_FORCE_ROOT": "yes"},
    )


def record(redis_server: RedisServer, task_id: str) -> dict[bytes, bytes]:
    """The task's record."""
    return redis_server.client().hgetall("{reliable:0}:task:" + task_id)


def gone(redis_server: RedisServer, task_id: str) -> None:
    """Wait until the task is settled and its message acknowledged."""
    client = redis_server.client()
    wait_for(lambda: not record(redis_server, task_id), 10, "settled")
    wait_for(lambda: not client.keys("unacked:*"), 10, "acknowledged")


def test_hooks_without_super_do_not_switch_the_protection_off(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("hooked", 2)
    assert result.get(timeout=15) == "hooked"
    assert [run.attempt for run in effects.runs(result.id)] == [1, 2, 3]
    gone(redis_server, result.id)
    assert effects.client.lrange("hooks", -4, -1) == [
        b"before_start 2",
        b"before_start 3",
        b"on_success",
        b"after_return",
    ]


@promise("poison-stops")
def test_autoretry_spends_retries_only(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("autoretried", 2)
    assert result.get(timeout=15) == "autoretried"
    failed = awkward.send("autoretried", 9)
    wait_for(lambda: record(redis_server, failed.id).get(b"state") == b"dead", 15, "buried")
    assert len(effects.runs(failed.id)) == 3
    assert record(redis_server, failed.id)[b"reason"] == b"failed"
    gone(redis_server, result.id)


def test_a_hard_time_limit_is_a_dead_letter_of_its_own_reason(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("limited")
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=15)
    wait_for(lambda: record(redis_server, result.id).get(b"state") == b"dead", 15, "buried")
    assert record(redis_server, result.id)[b"reason"] == b"time_limit"
    assert len(effects.runs(result.id)) == 1


def test_ignore_settles(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("ignoring")
    wait_for(lambda: effects.runs(result.id), 10, "it ran")
    gone(redis_server, result.id)


def test_reject_buries_or_runs_again(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    refused = awkward.send("rejecting", False)
    wait_for(lambda: record(redis_server, refused.id).get(b"state") == b"dead", 10, "buried")
    assert record(redis_server, refused.id)[b"reason"] == b"rejected"
    again = awkward.send("rejecting", True)
    wait_for(lambda: len(effects.runs(again.id)) == 2, 10, "the second run")
    gone(redis_server, again.id)


def test_without_results_it_is_protected_all_the_same(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("silent", 2)
    wait_for(lambda: len(effects.runs(result.id)) == 3, 15, "the third run")
    gone(redis_server, result.id)


def test_a_task_may_do_without_dead_letters(
    awkward: Project, worker: Worker, redis_server: RedisServer
) -> None:
    result = awkward.send("undeadly")
    with pytest.raises(ValueError, match="no letter"):
        result.get(timeout=10)
    gone(redis_server, result.id)


def test_a_task_may_have_its_own_budget(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("fragile")
    wait_for(lambda: record(redis_server, result.id).get(b"state") == b"dead", 15, "buried")
    assert len(effects.runs(result.id)) == 2


def test_pickled_and_compressed_messages_are_recovered(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("pickled", {1, 2})
    assert result.get(timeout=15) == "{1, 2}"
    gone(redis_server, result.id)


def test_a_result_that_cannot_be_stored_is_a_failure_that_ends(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("unstorable")
    wait_for(lambda: record(redis_server, result.id).get(b"state") == b"dead", 15, "buried")
    assert len(effects.runs(result.id)) == 1
    assert result.state == "FAILURE"


def test_a_canvas_that_is_quicker_than_its_host_keeps_its_last_member(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("replaced", [1, 2, 3])
    assert result.get(timeout=10) == 6
    assert [run.attempt for run in effects.runs(result.id)] == [1, 2]
    gone(redis_server, result.id)
    client = redis_server.client()
    wait_for(lambda: not client.keys("{reliable:0}:claims:*"), 5, "no claim is left")


@promise("never-two")
def test_one_id_is_one_task_while_it_lives(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    first = project.send("gate", "gate", task_id="the-id")
    again = project.send("gate", "gate", task_id="the-id")
    assert first.id == again.id == "the-id"
    assert client.llen("celery") == 1
    start_worker("one")
    wait_for(lambda: effects.runs("the-id"), 10, "it runs")
    project.send("gate", "gate", task_id="the-id")
    assert client.llen("celery") == 0
    effects.open_gate("gate")
    assert again.get(timeout=10) == "gate"
    gone(redis_server, "the-id")
    assert len(effects.runs("the-id")) == 1


def test_revoked_and_expired_tasks_leave_nothing(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start_worker("one")
    waiting = project.send("work", 0.01, countdown=5)
    wait_for(lambda: redis_server.client().keys("unacked:*"), 10, "fetched")
    waiting.revoke()
    expired = project.send("work", 0.01, countdown=2, expires=1)
    for result in (waiting, expired):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=15)
        gone(redis_server, result.id)
        assert not effects.runs(result.id)


def test_a_terminated_task_is_settled(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start_worker("one")
    result = project.send("gate", "never")
    wait_for(lambda: effects.runs(result.id), 10, "it runs")
    result.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=15)
    gone(redis_server, result.id)
    assert len(effects.runs(result.id)) == 1


def test_eager_and_direct_calls_touch_nothing(
    project: Project, effects: Effects, redis_server: RedisServer
) -> None:
    assert project.task("add")(1, 2) == 3
    assert project.task("add").apply((1, 2)).get() == 3
    project.app.conf.task_always_eager = True
    assert project.send("add", 1, 2).get() == 3
    assert project.send("locked", "object", 0.01).get() == "object"
    assert project.send("flaky", 1).get() == "run 2"
    assert not redis_server.client().keys("*reliable*")
    assert {run.attempt for run in effects.runs()} == {1}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("surrogate", r"FileNotFoundError: letter-\udcff.txt"),
        ("unsayable", "Unsayable: <its str() raised ValueError>"),
    ],
)
def test_a_failure_whose_text_cannot_be_written_is_a_failure_like_any_other(
    awkward: Project, worker: Worker, effects: Effects, how: str, said: str
) -> None:
    result = awkward.send("unsayable", how)
    letters = DeadLetters(awkward.app)

    wait_for(letters.count, 15, "a dead letter")

    letter = letters.get(result.id)
    assert (letter.reason, letter.exception) == (Reason.FAILED, said)
    assert "in unsayable" in letter.traceback
    assert (len(effects.runs(result.id)), letter.attempts, letter.losses) == (1, 1, 0)
    assert result.state == "FAILURE"


def test_a_retry_waits_until_its_body_has_unwound(
    awkward: Project,
    worker: Worker,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    start_worker(
        "other",
        app="tests.integration.project.awkward",
        project=awkward,
        environ={"C_FORCE_ROOT": "1"},
        chatty=True,
    )
    result = awkward.send("unwinding", 1.5)
    assert result.get(timeout=15) == "run 2"
    first, second = effects.runs(result.id)
    assert first.ended_at is not None
    assert second.started_at >= first.ended_at
    assert not effects.overlaps()
    gone(redis_server, result.id)


@promise("requeue-is-a-loss")
def test_who_rejects_itself_into_its_queue_does_not_do_so_for_ever(
    awkward: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = awkward.send("rejecting_always")
    wait_for(lambda: record(redis_server, result.id).get(b"state") == b"dead", 15, "buried")
    assert len(effects.runs(result.id)) == 2
    assert record(redis_server, result.id)[b"reason"] == b"lost"


def test_what_ended_without_an_outcome_does_not_wait_for_an_empty_queue(
    awkward: Project, worker: Worker, effects: Effects
) -> None:
    blocker = [awkward.send("plain_work", 0.2) for _ in range(25)]
    result = awkward.send("rejecting", True)
    # As many come as are worked off: there is always something in the queue.
    with Load(lambda: awkward.send("plain_work", 0.2, ignore_result=True).id, per_second=9):
        wait_for(lambda: len(effects.runs(result.id)) == 2, 30, "the second run")
    assert blocker[0].get(timeout=5) == "worked"
