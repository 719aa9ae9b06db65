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
from tests.integration.figures import (
    assert_each_ran_once,
    most_at_once,
    record_of,
    wait_until_settled,
)
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project)


def n_scripts(client: Any) -> int:
    """How many scripts the server has run."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def test_a_process_takes_the_next_message_by_itself(pooled: Project) -> None:
    one = start(pooled)
    result, gate, pid = in_shift(pooled)
    record = record_of(pooled.redis, result.id)
    assert [int(record["pid"])] == one.children() == [pid]
    pooled.effects.open_gate(gate)
    assert result.get(timeout=20) == gate
    wait_until_settled(pooled.redis, 10)


def test_a_place_is_passed_on_in_the_step_that_settles_and_takes_the_next(pooled: Project) -> None:
    start(pooled, concurrency=2)
    first = [pooled.send("placed", f"warm {n}", 0) for n in range(20)]
    for one in first:
        one.get(timeout=20)
    client, n_tasks = pooled.redis.client(), 300
    gates = [pooled.send("gate", "open") for _ in range(2)]
    for gate in gates:
        pooled.effects.run_of(gate.id)
    results = [pooled.send("placed", "object", 0, ignore_result=True) for _ in range(n_tasks)]
    before = n_scripts(client)

    pooled.effects.open_gate("open")
    wait_until_settled(pooled.redis, 60)

    # A shift ends after a second, and what it leaves goes by the main process.
    assert n_scripts(client) - before < 1.7 * n_tasks
    client.close()
    runs = pooled.effects.runs("object")
    assert_each_ran_once(pooled.effects, [one.id for one in results])
    assert most_at_once(runs) <= 2


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


@pytest.mark.full
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
    assert_each_ran_once(pooled.effects, [one.id for one in [result, *behind]])
    # None was taken and forgotten.
    assert {run.attempt for run in pooled.effects.runs()} == {1}


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


@pytest.mark.full
def test_what_is_not_ordinary_goes_by_the_main_process(pooled: Project) -> None:
    start(pooled, concurrency=2)
    results = [
        pooled.send("work", 0, countdown=1),
        pooled.send("work", 0, expires=60),
        pooled.send("work", 0, time_limit=30),
        pooled.send("plain_work", 0),
        pooled.send("flaky", 2),
        pooled.send("locked", "thing", 0),
        *[pooled.send("work", 0) for _ in range(20)],
    ]
    for result in results:
        result.get(timeout=30)
    failed = pooled.send("failing")
    wait_for(lambda: failed.state == "FAILURE", 20, "it has failed")
    flaky = results[4].id
    assert [run.attempt for run in pooled.effects.runs(flaky)] == [1, 2, 3]
    assert_each_ran_once(pooled.effects, [r.id for r in results if r.id != flaky])


def by_process(pooled: Project) -> dict[int, list[str]]:
    """The ids of the tasks that each process has run, in the order in which they began."""
    found: dict[int, list[str]] = {}
    for run in sorted(pooled.effects.runs(), key=lambda run: run.started_at):
        found.setdefault(run.pid, []).append(run.task_id)
    return found


def one_by_one(pooled: Project, count: int) -> int:
    """Run tasks of which all but the first wait behind another; return how many of them processes
    have taken by themselves.
    """
    gates = [f"gate {n}" for n in range(count)]
    results = [pooled.send("gate", gate) for gate in gates]
    in_shifts = 0
    for result, gate in zip(results, gates, strict=True):
        pooled.effects.run_of(result.id)
        in_shifts += "." in record_of(pooled.redis, result.id)["token"]
        pooled.effects.open_gate(gate)
        assert result.get(timeout=20) == gate
    assert_each_ran_once(pooled.effects, [result.id for result in results])
    assert {run.attempt for run in pooled.effects.runs()} == {1}
    wait_until_settled(pooled.redis, 10)
    return in_shifts


@pytest.mark.full
def test_a_process_is_replaced_after_its_number_of_tasks(pooled: Project) -> None:
    start(pooled, options=("--max-tasks-per-child", "3"))
    in_shifts = one_by_one(pooled, 10)
    assert [len(one) for one in by_process(pooled).values()] == [3, 3, 3, 1]
    # The main process may hand the first of its tasks to each.
    assert in_shifts >= 6


@pytest.mark.full
def test_a_hard_time_limit_ends_a_task_of_a_shift(pooled: Project) -> None:
    start(pooled, options=("--time-limit", "3"))
    result, _, pid = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(5)]
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=20)
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [other.id for other in behind])
    assert len(pooled.effects.runs(result.id)) == 1
    assert pid not in {run.pid for other in behind for run in pooled.effects.runs(other.id)}
    assert record_of(pooled.redis, result.id)["reason"] == "time_limit"


@pytest.mark.full
def test_a_soft_time_limit_interrupts_a_task_of_a_shift(pooled: Project) -> None:
    one = start(pooled, options=("--soft-time-limit", "3"))
    result, _, pid = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(5)]
    with pytest.raises(SoftTimeLimitExceeded):
        result.get(timeout=20)
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [other.id for other in behind])
    assert len(pooled.effects.runs(result.id)) == 1
    # Its process lives on.
    assert one.children() == [pid]


@pytest.mark.full
def test_a_process_that_has_too_much_memory_is_replaced(pooled: Project) -> None:
    # Each has more than that from its beginning.
    start(pooled, options=("--max-memory-per-child", "1"))
    in_shifts = one_by_one(pooled, 4)
    assert [len(one) for one in by_process(pooled).values()] == [1, 1, 1, 1]
    assert in_shifts >= 1
