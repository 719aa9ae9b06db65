"""The pool whose processes take their own messages: what they take, and what happens to it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from celery_reliable.broker import take_next_text
from celery_reliable.ledger.scripts import inside, script, together
from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, record_of, wait_until_settled
from tests.integration.shifts import in_shift, start, token_of, with_shifts
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project)


def ran_once(pooled: Project, results: list[Any]) -> None:
    """Assert that these have run once, and that no attempt was taken and forgotten."""
    assert_each_ran_once(pooled.effects, [one.id for one in results])
    assert {run.attempt for one in results for run in pooled.effects.runs(one.id)} == {1}


def test_a_process_takes_the_next_message_by_itself(pooled: Project) -> None:
    one = start(pooled)
    result, gate, pid = in_shift(pooled)
    record = record_of(pooled.redis, result.id)
    assert [int(record["pid"])] == one.children() == [pid]
    pooled.effects.open_gate(gate)
    assert result.get(timeout=20) == gate
    wait_until_settled(pooled.redis, 10)


def test_of_a_killed_worker_what_its_processes_took_comes_back(pooled: Project) -> None:
    one = start(pooled)
    result, gate, _ = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(5)]
    one.kill_group()
    start(pooled, "two")
    pooled.effects.open_gate(gate)
    assert result.get(timeout=40) == gate
    assert [run.attempt for run in pooled.effects.runs(result.id)] == [1, 2]
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [other.id for other in behind])


@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
def test_a_step_that_is_lost_is_repeated(pooled: Project, proxy: RedisProxy, how: str) -> None:
    start(pooled.with_settings(broker_url=proxy.url()))
    result, gate, _ = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(3)]
    claiming = inside(script("claim"), "take_next", take_next_text())
    taking = inside(script("lock"), "take_next", claiming.text)
    rule = getattr(proxy, how)(script=together(script("settle"), taking).sha, times=2)
    pooled.effects.open_gate(gate)
    for one in [result, *behind]:
        one.get(timeout=20)
    rule.wait(2)
    wait_until_settled(pooled.redis, 10)
    ran_once(pooled, [result, *behind])


def test_a_warm_stop_ends_a_shift_and_leaves_what_waits(pooled: Project) -> None:
    one = start(pooled)
    result, gate, _ = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(20)]
    one.signal_main(signal.SIGTERM)
    pooled.effects.open_gate(gate)
    assert one.wait_until_ended() == 0
    assert result.get(timeout=10) == gate
    start(pooled, "two")
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [result.id, *(other.id for other in behind)])
    wait_until_settled(pooled.redis, 10)


def test_what_is_not_ordinary_goes_by_the_main_process(pooled: Project) -> None:
    start(pooled, concurrency=2)
    flaky = pooled.send("flaky", 2)
    results = [
        pooled.send("work", 0, countdown=1),
        pooled.send("work", 0, expires=60),
        pooled.send("work", 0, time_limit=30),
        pooled.send("plain_work", 0),
        pooled.send("locked", "thing", 0),
        *[pooled.send("work", 0) for _ in range(20)],
    ]
    for result in [flaky, *results]:
        result.get(timeout=30)
    failed = pooled.send("failing")
    wait_for(lambda: failed.state == "FAILURE", 20, "it has failed")
    assert [run.attempt for run in pooled.effects.runs(flaky.id)] == [1, 2, 3]
    assert_each_ran_once(pooled.effects, [one.id for one in results])


# What Celery's options and commands do with a process


@pytest.mark.full
@pytest.mark.parametrize(
    ("option", "n_tasks", "of_each"),
    [
        (("--max-tasks-per-child", "3"), 10, [3, 3, 3, 1]),
        # Each has more than that from its beginning.
        (("--max-memory-per-child", "1"), 4, [1, 1, 1, 1]),
    ],
)
def test_a_process_is_replaced(
    pooled: Project, option: tuple[str, ...], n_tasks: int, of_each: list[int]
) -> None:
    start(pooled, options=option)
    gates = [f"gate {n}" for n in range(n_tasks)]
    results = [pooled.send("gate", gate) for gate in gates]
    in_shifts = 0
    for result, gate in zip(results, gates, strict=True):
        pooled.effects.run_of(result.id)
        in_shifts += "." in token_of(pooled, result.id)
        pooled.effects.open_gate(gate)
        assert result.get(timeout=20) == gate
    ran_once(pooled, results)
    runs = sorted(pooled.effects.runs(), key=lambda run: run.started_at)
    pids = [run.pid for run in runs]
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == of_each
    # The main process may hand the first of its tasks to each.
    assert in_shifts >= n_tasks - len(of_each)
    wait_until_settled(pooled.redis, 10)


@pytest.mark.parametrize(
    ("option", "error"),
    [("--time-limit", TimeLimitExceeded), ("--soft-time-limit", SoftTimeLimitExceeded)],
)
def test_a_time_limit_ends_a_task_of_a_shift(
    pooled: Project, option: str, error: type[Exception]
) -> None:
    one = start(pooled, options=(option, "3"))
    result, _, pid = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(5)]
    with pytest.raises(error):
        result.get(timeout=20)
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [other.id for other in behind])
    assert len(pooled.effects.runs(result.id)) == 1
    # Of the soft limit its process lives on.
    assert (one.children() == [pid]) is (error is SoftTimeLimitExceeded)


# Who stops what runs


# What a monitor hears
