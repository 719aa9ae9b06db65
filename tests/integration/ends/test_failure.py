"""Ends that are not success: each leaves its record in the right state, and none comes back."""

from __future__ import annotations

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import DeadLetter, Reason
from celery_reliable.operations.dead_letters import DeadLetters
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
from tests.integration.figures import LEDGER, record_of, wait_until_gone
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
