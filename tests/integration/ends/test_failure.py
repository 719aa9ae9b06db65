"""Ends that are not success: each leaves its record in the right state, and none comes back."""

from __future__ import annotations

from collections import Counter

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import DeadLetter, Reason
from celery_reliable.operations.dead_letters import DeadLetters
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.ends.ways import (
    ENDS,
    GONE,
    End,
    assert_none_comes_back,
    end_of,
    wait_for_ends,
    wait_until_only_ends_are_left,
)
from tests.integration.figures import DEAD, LEDGER, record_of, wait_until_gone
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@promise("nothing-lost", "requeue-is-a-loss")
@pytest.mark.parametrize("pool", ["prefork", pytest.param("threads", marks=pytest.mark.full)])
def test_each_end_is_the_right_one_and_the_last(ending: Project, pool: str) -> None:
    worker = ending.start_worker("one", pool=pool)
    cases = {h: c for h, c in ENDS.items() if pool == "prefork" or not c.needs_process}
    ids = {how: ending.send(case.task, how, **case.options).id for how, case in cases.items()}

    for how, task_id in ids.items():
        wait_for(lambda i=task_id: end_of(ending, i), 60, f"the end of {how}")

    assert {how: end_of(ending, i) for how, i in ids.items()} == {
        h: c.end for h, c in cases.items()
    }
    # What a body raises ends no worker.
    assert worker.is_running
    ends = {ids[how]: case.end for how, case in cases.items()}
    wait_until_only_ends_are_left(ending.redis, sum(end.left != GONE for end in ends.values()))
    assert_none_comes_back(ending, worker, ends)


@pytest.mark.full
@promise("results-best-effort")
def test_ends_that_the_main_process_sees_do_not_need_the_result_backend(
    apart: Project, results: RedisServer
) -> None:
    worker = apart.start_worker("one", concurrency=1)
    stopped = apart.begin("locked_gate", "object", "never")
    limited = apart.send("ending", "sleep", time_limit=1)
    undead = apart.send("undead")
    rejected = apart.send("ending", "reject")
    expired = apart.send("work", 0.01, countdown=1, expires=0.5)
    results.stop()

    apart.app.control.revoke(stopped.id, terminate=True, reply=True, limit=1, timeout=5)

    ledger, client = reliable_of(apart.app).ledger, apart.redis.client()
    later = apart.send("plain_work", 0.01, ignore_result=True)
    wait_for(lambda: apart.effects.finished(later.id), 20, "others run")
    wait_for(lambda: ledger.find(stopped.id) is None, 10, "the terminated one is gone")
    wait_for(lambda: DeadLetters(apart.app).count() == 3, 10, "three dead letters")
    wait_for(lambda: not client.keys("unacked*"), 10, "every message acknowledged")
    wait_for(lambda: not client.keys(LEDGER + "lock:*"), 5, "every lock is freed")
    results.start()
    # What nobody could be told is told now.
    ends = {one.id: End("time_limit", "FAILURE") for one in (limited, undead)}
    ends[expired.id] = End(GONE, "REVOKED", 0)
    wait_for_ends(apart, ends)
    letter = DeadLetters(apart.app).get(rejected.id)
    assert letter.reason is Reason.REJECTED
    ends |= {rejected.id: End("rejected", rejected.state), stopped.id: End(GONE, stopped.state)}
    assert_none_comes_back(apart, worker, ends)


@promise("poison-stops")
def test_a_failure_is_no_loss_whatever_it_says_and_wherever_it_comes_from(shared: Project) -> None:
    letters = DeadLetters(shared.app)

    def letter_of(task_id: str) -> DeadLetter:
        wait_for(lambda: record_of(shared.redis, task_id).get("state") == "dead", 15, "buried")
        return letters.get(task_id)

    retried = shared.send("autoretried", 2)
    assert retried.get(timeout=15) == "autoretried"
    wait_until_gone(shared.redis, retried.id)
    failed = shared.send("autoretried", 9)
    assert letter_of(failed.id).reason is Reason.FAILED
    assert len(shared.effects.runs(failed.id)) == 3
    assert letter_of(shared.send("rejecting", False).id).reason is Reason.REJECTED
    again = shared.send("rejecting", True)
    wait_for(lambda: len(shared.effects.runs(again.id)) == 2, 10, "the second run")
    wait_until_gone(shared.redis, again.id)
    # A task may do without dead letters.
    undeadly = shared.send("undeadly")
    with pytest.raises(ValueError, match="no letter"):
        undeadly.get(timeout=10)
    wait_until_gone(shared.redis, undeadly.id)
    # The text of a failure may be one that cannot be written.
    for how, said in {
        "surrogate": r"FileNotFoundError: letter-\udcff.txt",
        "unsayable": "Unsayable: <its str() raised ValueError>",
    }.items():
        result = shared.send("unsayable", how)
        letter = letter_of(result.id)
        assert (letter.reason, letter.exception) == (Reason.FAILED, said)
        assert "in unsayable" in letter.traceback
        assert (len(shared.effects.runs(result.id)), letter.attempts, letter.losses) == (1, 1, 0)
        assert result.state == "FAILURE"


def test_an_expected_failure_is_no_dead_letter(ending: Project) -> None:
    ending.start_worker("one", concurrency=1)
    errback = ending.task("add").si(1, 1)
    # The second needs the object of the first.
    expected = [ending.send("expecting", "fail", link_error=errback) for _ in range(2)]
    ends = {
        **{result.id: End(GONE, "FAILURE") for result in expected},
        ending.send("expecting", "RecursionError").id: End("failed", "FAILURE"),
        ending.send("expecting", "os._exit").id: End("lost", "FAILURE", 2, 2),
        ending.send("expecting", "sleep", time_limit=1).id: End("time_limit", "FAILURE"),
        ending.send("expecting_always", "fail").id: End("failed", "FAILURE"),
    }
    wait_for_ends(ending, ends)
    wait_until_only_ends_are_left(ending.redis, sum(end.left != GONE for end in ends.values()))
    called = [run for run in ending.effects.runs() if run.task == "project.add"]
    assert len(called) == len(expected)


@pytest.mark.full
def test_a_soft_limit_that_comes_too_late_for_the_body_changes_nothing(
    apart: Project, results: RedisServer
) -> None:
    worker = apart.start_worker("one")
    result = apart.send("locked_gate", "object", "gate", soft_time_limit=4)
    began_at = apart.effects.run_of(result.id).started_at
    results.stop()
    apart.effects.open_gate("gate")
    wait_for(lambda: apart.effects.finished(result.id), 10, "the end of its body")
    assert apart.effects.now() - began_at < 4

    # It comes while the outcome waits for the result backend.
    wait_for(lambda: apart.effects.now() - began_at > 5, 10, "the limit")
    results.start()

    ends = {result.id: End(GONE, "SUCCESS")}
    wait_for_ends(apart, ends)
    wait_until_only_ends_are_left(apart.redis, 0)
    assert_none_comes_back(apart, worker, ends)


@pytest.mark.full
def test_a_hard_limit_reports_a_failure_once_and_none_of_a_task_that_has_ended(
    project: Project,
) -> None:
    project.start_worker("one", concurrency=1)
    link, errback = project.task("listed").si(None), project.task("add").si(1, 1)
    ended = project.send("finished_late", link=link, link_error=errback)
    over = project.send("ending", "sleep", time_limit=1, link_error=project.task("total").si([1]))

    def counted() -> Counter[str]:
        return Counter(run.task.removeprefix("project.") for run in project.effects.runs())

    wait_for(lambda: counted()["total"], 60, "the errback")
    assert record_of(project.redis, over.id)["state"] == "dead"
    # All that was published before it has run by then.
    assert project.send("work", 0.01).get(timeout=60) == "worked"

    assert ended.state == "SUCCESS"
    counts = counted()
    assert counts == dict.fromkeys(("finished_late", "listed", "ending", "total", "work"), 1)
    assert project.redis.client().zcard(DEAD) == 1


@pytest.mark.full
@promise("poison-stops")
def test_poison_is_buried_while_the_result_backend_is_away_and_announced_when_it_is_back(
    project: Project, start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = start_redis()
    once = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1}
    project = project.with_settings(
        result_url=results.url(),
        reliable={"MAX_LOSSES": 0, "QUEUED_SECONDS": 16},
        celery={"result_backend_transport_options": {"retry_policy": once}},
    )
    project.start_worker("one", concurrency=1)
    poison = project.send("poison")
    # Where the main process was in a hurry, the sweeper tells it, after QUEUED_SECONDS.
    wait_for(lambda: poison.state == "FAILURE", 40, "FAILURE")
    # The result comes first.
    told = f"task_failure:{poison.id}"
    assert wait_for(lambda: project.effects.client.get(told), 5, "the signal") == b"1"
    results.kill()
    # Whoever publishes would subscribe to the result first.
    monkeypatch.setattr(type(project.app.backend), "on_task_call", lambda *_: None)
    poison = project.app.send_task("project.poison", ignore_result=False)
    wait_for(lambda: record_of(project.redis, poison.id).get("state") == "dead", 20, "buried")
    # The only process is free again.
    plain = project.send("plain_work", 0.01, ignore_result=True)
    wait_for(lambda: project.effects.finished(plain.id), 20, "the next one ran")
    assert "owed" in record_of(project.redis, poison.id)
    results.start()
    wait_for(lambda: "owed" not in record_of(project.redis, poison.id), 40, "announced")
    assert poison.state == "FAILURE"
    # The sweeper tells whom the main process would have told.
    wait_for(lambda: project.effects.client.get(f"task_failure:{poison.id}"), 5, "the signal")
    assert len(project.effects.runs(poison.id)) == 1


@pytest.mark.full
@promise("nothing-lost")
def test_a_task_runs_again_though_its_hook_raised_as_the_lost_connection_stopped_it(
    project: Project,
) -> None:
    """Celery calls the hook after the stop, and before it notes why it stopped the task."""
    project = project.with_settings(
        reliable={"MAX_LOSSES": 0},
        celery={"worker_cancel_long_running_tasks_on_connection_loss": True},
    )
    project.start_worker("one", concurrency=1, pool="prefork")
    result = project.begin("retried_badly", "gate")
    with project.redis.client() as client:
        # Workers receive remote commands on it.
        client.client_kill_filter(_type="pubsub")
    assert project.effects.run_of(result.id, 2, timeout_seconds=60).attempt == 2
    # The task is charged nothing.
    assert "losses" not in record_of(project.redis, result.id)
    project.effects.open_gate("gate")
    assert result.get(timeout=20) == "gate"
    assert not project.effects.overlaps()
