"""The pool whose processes take their own messages: what they take, and what happens to it."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import Any

import psutil
import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from celery_reliable.broker import take_next_text
from celery_reliable.ledger.scripts import inside, script, together
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import TWO_QUEUES, Project
from tests.integration.figures import (
    DEAD,
    LOCKS,
    assert_each_ran_once,
    most_at_once,
    record_of,
    wait_until_settled,
)
from tests.integration.shifts import POOL, in_shift, start, with_shifts
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


def test_who_becomes_a_canvas_leaves_the_place_that_it_had_from_the_beginning(
    pooled: Project,
) -> None:
    start(pooled, concurrency=2)
    gates = [pooled.send("gate", "open") for _ in range(2)]
    objects = [f"object {n}" for n in range(10)]
    for one in objects:
        pooled.send("placed_replaced", one, 600)
    behind = [pooled.send("placed_replaced", one, 0) for one in objects]
    for gate in gates:
        pooled.effects.run_of(gate.id)

    pooled.effects.open_gate("open")

    for result in behind:
        assert result.get(timeout=20) in objects
    # Those that wait have the ids, and have left the objects.
    client = pooled.redis.client()
    assert not client.keys(LOCKS)
    client.close()


def test_of_a_killed_process_the_task_comes_back_and_is_charged(pooled: Project) -> None:
    one = start(pooled)
    result, gate, pid = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(5)]
    one.kill_child(pid)
    wait_for(lambda: len(pooled.effects.runs(result.id)) == 2, 10, "it runs again")
    pooled.effects.open_gate(gate)
    assert result.get(timeout=20) == gate
    assert [run.attempt for run in pooled.effects.runs(result.id)] == [1, 2]
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [other.id for other in behind])
    wait_until_settled(pooled.redis, 10)


def test_the_tasks_of_killed_processes_are_back_at_once(
    pooled: Project, pytestconfig: pytest.Config
) -> None:
    one, waited = start(pooled), []
    for turn in range(12 if pytestconfig.getoption("full") else 3):
        result, gate, pid = in_shift(pooled, f"turn {turn}")
        one.kill_child(pid)
        killed_at = pooled.effects.now()
        wait_for(lambda r=result: len(pooled.effects.runs(r.id)) == 2, 10, "it runs again")
        waited.append(pooled.effects.starts(result.id)[1] - killed_at)
        pooled.effects.open_gate(gate)
        assert result.get(timeout=20) == gate
    print("seconds from the death in a shift to the re-run:", [round(w, 2) for w in waited])
    # For machines that have much else to do.
    assert max(waited) <= 2


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


def test_what_kills_its_process_is_buried_and_nothing_beside_it(pooled: Project) -> None:
    start(pooled, concurrency=2)
    held = pooled.send("gate", "open")
    pooled.effects.run_of(held.id)
    deadly = pooled.send("poison")
    others = [pooled.send("work", 0) for _ in range(20)]
    client = pooled.redis.client()
    wait_for(lambda: client.zscore(DEAD, deadly.id), 30, "it is a dead letter")
    told = [entry.cause for entry in DeadLetters(pooled.app).get(deadly.id).history]
    pids = [run.pid for run in pooled.effects.runs(deadly.id)]
    assert told == [f"child_lost: signal 9 (SIGKILL), pid {pid}" for pid in pids]
    for other in others:
        assert other.get(timeout=20) == "worked"
    pooled.effects.open_gate("open")
    assert held.get(timeout=20) == "open"
    assert_each_ran_once(pooled.effects, [held.id, *(other.id for other in others)])


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


def test_what_runs_in_a_shift_is_seen_and_can_be_stopped(pooled: Project) -> None:
    start(pooled)
    result, _, pid = in_shift(pooled)
    inspect = pooled.app.control.inspect(timeout=10)
    inspect.limit = 1
    (active,) = (inspect.active() or {}).values()
    assert [(one["id"], one["worker_pid"]) for one in active] == [(result.id, pid)]
    pooled.app.control.revoke(result.id, terminate=True)
    wait_for(lambda: result.state == "REVOKED", 20, "it is revoked")
    assert pooled.send("work", 0).get(timeout=20) == "worked"
    assert len(pooled.effects.runs(result.id)) == 1
    wait_until_settled(pooled.redis, 10)


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


def test_queues_take_turns_within_a_shift_too(pooled: Project) -> None:
    start(pooled, options=("-Q", "left,right"))
    held = pooled.send("gate", "open", queue="left")
    pooled.effects.run_of(held.id)
    queues = {
        pooled.send("work", 0, queue=queue).id: queue
        for queue in ("left", "right")
        for _ in range(8)
    }
    pooled.effects.open_gate("open")
    wait_until_settled(pooled.redis, 20)
    assert_each_ran_once(pooled.effects, [held.id, *queues])
    runs = sorted(pooled.effects.runs(), key=lambda run: run.started_at)
    turns = [queues[run.task_id] for run in runs if run.task_id in queues]
    # Between two shifts it is the main process's turn, which goes by what it has taken itself.
    assert sum(a == b for a, b in pairwise(turns)) <= len(turns) // 4


def test_it_is_there_by_the_name_that_celery_has_for_pools_of_others(project: Project) -> None:
    named = {"CELERY_CUSTOM_WORKER_POOL": POOL}
    project.start_worker("one", pool="custom", concurrency=1, environ=named, options=TWO_QUEUES)
    result, gate, _ = in_shift(project)
    project.effects.open_gate(gate)
    assert result.get(timeout=20) == gate
    wait_until_settled(project.redis, 10)


def test_nothing_is_fetched_behind_a_shift_where_celery_fetches_nothing_ahead(
    project: Project,
) -> None:
    """Celery itself counts the requests that its main process has."""
    pooled = with_shifts(project, {"worker_disable_prefetch": True})
    start(pooled)
    _, gate, _ = in_shift(pooled)
    behind = pooled.send("work", 0)
    start(pooled, "two")
    assert behind.get(timeout=20) == "worked"
    (run,) = pooled.effects.runs(behind.id)
    assert run.worker.startswith("two@")
    client = pooled.redis.client()
    others = [pooled.send("gate", "others") for _ in range(2)]
    wait_for(lambda: any(pooled.effects.runs(one.id) for one in others), 10, "one of them runs")
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 2, 10, "both have waited since")
    assert client.llen("celery") == 1
    for name in (gate, "others"):
        pooled.effects.open_gate(name)
    for one in others:
        assert one.get(timeout=20) == "others"


def test_idle_processes_do_not_wake(pooled: Project) -> None:
    one = start(pooled, concurrency=2)
    for result in [pooled.send("work", 0) for _ in range(20)]:
        result.get(timeout=20)
    wait_until_settled(pooled.redis, 10)
    children = [psutil.Process(pid) for pid in one.children()]
    client = pooled.redis.client()

    def woken() -> list[int]:
        return [child.num_ctx_switches().voluntary for child in children]

    def n_pops() -> int:
        return int(client.info("commandstats")["cmdstat_brpop"]["calls"])  # type: ignore[index]

    def wait_for_pops(count: int) -> None:
        begun = n_pops()
        wait_for(lambda: n_pops() >= begun + count, 40, "the worker has waited for some seconds")

    # The last shift has ended by then.
    wait_for_pops(3)
    before = woken()
    wait_for_pops(4)
    assert woken() == before


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


def test_a_process_is_replaced_after_its_number_of_tasks(pooled: Project) -> None:
    start(pooled, options=("--max-tasks-per-child", "3"))
    in_shifts = one_by_one(pooled, 10)
    assert [len(one) for one in by_process(pooled).values()] == [3, 3, 3, 1]
    # The main process may hand the first of its tasks to each.
    assert in_shifts >= 6


def test_a_process_that_has_too_much_memory_is_replaced(pooled: Project) -> None:
    # Each has more than that from its beginning.
    start(pooled, options=("--max-memory-per-child", "1"))
    in_shifts = one_by_one(pooled, 4)
    assert [len(one) for one in by_process(pooled).values()] == [1, 1, 1, 1]
    assert in_shifts >= 1


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


def test_a_warm_stop_does_not_wait_beyond_the_time_limit_of_a_shifts_task(pooled: Project) -> None:
    own = {"worker_pool": POOL, "task_annotations": {"project.gate": {"time_limit": 3}}}
    one = start(pooled.with_settings(celery=own))
    result, _, _ = in_shift(pooled)
    one.signal_main(signal.SIGTERM)
    assert one.wait_until_ended() == 0
    with pytest.raises(TimeLimitExceeded):
        result.get(timeout=10)
    assert record_of(pooled.redis, result.id)["reason"] == "time_limit"


def test_a_limit_is_for_each_task_and_not_for_a_shift(
    pooled: Project, pytestconfig: pytest.Config
) -> None:
    if not pytestconfig.getoption("full"):
        pytest.skip("a task that a busy machine delays has a limit, too")
    start(pooled, options=("--time-limit", "1.5"))
    # The second begins in the first second of its shift, and ends after the limit.
    results = [pooled.send("work", 0.9) for _ in range(6)]
    for result in results:
        assert result.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [result.id for result in results])
