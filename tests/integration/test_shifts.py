"""The pool whose processes take their own messages: what they take, and what happens to it."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from celery_reliable.app import reliable_of
from celery_reliable.broker import take_next_text
from celery_reliable.ledger.answers import Resumed
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from celery_reliable.orders import OrderKind
from tests.integration.conftest import SOON, Project
from tests.integration.figures import assert_each_ran_once, record_of, wait_until_settled
from tests.integration.monitoring import Monitor, monitoring
from tests.integration.shifts import in_shift, start, token_of, with_shifts
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)

#: With this the main process hears of each task, and stops what runs when its connection is lost.
CANCELS = {"worker_cancel_long_running_tasks_on_connection_loss": True}


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project)


def ran_once(pooled: Project, results: list[Any]) -> None:
    """Assert that these have run once, and that no attempt was taken and forgotten."""
    assert_each_ran_once(pooled.effects, [one.id for one in results])
    assert {run.attempt for one in results for run in pooled.effects.runs(one.id)} == {1}


def test_a_process_takes_messages_by_itself_and_what_it_took_survives_its_worker(
    pooled: Project,
) -> None:
    one = start(pooled)
    result, gate, pid = in_shift(pooled)
    assert [int(record_of(pooled.redis, result.id)["pid"])] == one.children() == [pid]
    behind = [pooled.send("work", 0) for _ in range(5)]
    one.kill_group()
    start(pooled, "two")
    pooled.effects.open_gate(gate)
    assert result.get(timeout=40) == gate
    assert [run.attempt for run in pooled.effects.runs(result.id)] == [1, 2]
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(pooled.effects, [other.id for other in behind])
    wait_until_settled(pooled.redis, 10)


def test_a_step_that_is_lost_is_repeated(pooled: Project, proxy: RedisProxy) -> None:
    start(pooled.with_settings(broker_url=proxy.url()))
    step = together(script("settle"), taking_script(take_next_text())).sha
    for drop in (proxy.drop_request, proxy.drop_reply):
        result, gate, _ = in_shift(pooled, drop.__name__)
        behind = [pooled.send("work", 0) for _ in range(3)]
        rule = drop(script=step, times=2)
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


@pytest.mark.full
def test_limits_that_are_set_while_it_runs_hold_for_the_next_tasks(pooled: Project) -> None:
    start(pooled)
    before, gate, _ = in_shift(pooled)
    control = pooled.app.control
    assert control.rate_limit("project.work", "2/s", reply=True, limit=1, timeout=10)
    assert control.time_limit("project.gate", hard=1, reply=True, limit=1, timeout=10)
    limited = pooled.send("gate", "shut")
    results = [pooled.send("work", 0) for _ in range(5)]

    pooled.effects.open_gate(gate)

    assert before.get(timeout=20) == gate
    with pytest.raises(TimeLimitExceeded):
        limited.get(timeout=30)
    wait_for(lambda: all(pooled.effects.finished(one.id) for one in results), 30, "all have run")
    starts = sorted(pooled.effects.starts(one.id)[0] for one in results)
    # The bucket has one token at first, and may count a moment differently than the server.
    assert all(later - one > 0.3 for one, later in list(pairwise(starts))[1:])


@pytest.mark.full
def test_what_a_process_has_taken_is_stopped_as_the_connection_is_lost(project: Project) -> None:
    pooled = with_shifts(project.with_settings(reliable={"MAX_LOSSES": 0}), CANCELS)
    start(pooled)
    result, gate, pid = in_shift(pooled)
    client = pooled.redis.client()
    # The main process waits for a message, though its only process is busy, or takes turns.
    for one in client.client_list():
        if one["cmd"] in ("brpop", "subscribe", "psubscribe"):
            client.client_kill_filter(_id=one["id"])
    again = pooled.effects.run_of(result.id, 2, timeout_seconds=30)
    assert (again.pid != pid, again.attempt) == (True, 2)
    # The task is charged nothing.
    assert "losses" not in record_of(pooled.redis, result.id)
    pooled.effects.open_gate(gate)
    assert result.get(timeout=20) == gate
    assert not pooled.effects.overlaps()
    wait_until_settled(pooled.redis, 20)


@pytest.mark.full
def test_what_a_process_has_taken_is_stopped_by_an_order_and_charged_nothing(
    project: Project,
) -> None:
    pooled = with_shifts(project.with_settings(reliable={**SOON, "MAX_LOSSES": 0}))
    start(pooled)
    result, gate, _ = in_shift(pooled)
    orders = reliable_of(pooled.app).ledger.orders

    order = orders.give(
        OrderKind.STRIKE, "project.gate", by="ann", why="it is broken", is_stop=True
    )

    wait_for(
        lambda: record_of(pooled.redis, result.id).get("waiting_for") == f"order {order.id}",
        30,
        "it waits for the end of the order",
    )
    assert "losses" not in record_of(pooled.redis, result.id)
    assert isinstance(orders.resume(order.id, by="ann", limit=1000), Resumed)
    pooled.effects.open_gate(gate)
    assert result.get(timeout=30) == gate
    assert [run.outcome for run in pooled.effects.runs(result.id)] == [None, "finished"]
    wait_until_settled(pooled.redis, 20)


#: What differs from run to run.
OWN = {"uuid", "root_id", "clock", "timestamp", "local_received", "runtime", "pid", "hostname"}
ENDS = {"work": "task-succeeded", "failing": "task-failed"}


def heard(monitor: Monitor, ids: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Celery's own events of each task, without what differs from run to run."""
    found = {}
    for name, task_id in ids.items():
        wait_for(lambda i=task_id, n=name: ENDS[n] in monitor.kinds(i), 20, f"the end of {name}")
        kinds = {"task-received", "task-started", ENDS[name]}
        found[name] = [
            {key: value for key, value in event.items() if key not in OWN}
            for event in monitor.of(task_id)
            if event["type"] in kinds
        ]
    return found


def send_some(project: Project, gate: str) -> tuple[dict[str, str], Any]:
    """Tasks that one process runs one after the other, and what waits at a gate behind them."""
    ids = {"work": project.send("work", 0).id, "failing": project.send("failing").id}
    return ids, project.send("gate", gate)


def in_one_shift(pooled: Project) -> dict[str, str]:
    """Some of which it is certain that their process has taken all by itself."""
    for number in range(20):
        held, gate, _ = in_shift(pooled, f"held {number}")
        shift = token_of(pooled, held.id).rpartition(".")[0]
        ids, last = send_some(pooled, f"last {number}")
        pooled.effects.open_gate(gate)
        pooled.effects.run_of(last.id)
        is_one = token_of(pooled, last.id).rpartition(".")[0] == shift
        pooled.effects.open_gate(f"last {number}")
        if is_one:
            return ids
    raise AssertionError("each shift was over before")


@pytest.mark.full
def test_a_monitor_hears_of_a_shift_what_it_hears_of_prefork(pooled: Project) -> None:
    with monitoring(pooled.app) as monitor:
        one = start(pooled, options=("-E",))
        of_shift = heard(monitor, in_one_shift(pooled))
        assert {name: [event["type"] for event in found] for name, found in of_shift.items()} == {
            name: ["task-received", "task-started", end] for name, end in ENDS.items()
        }
        one.stop()

        prefork = pooled.with_settings(celery={"worker_pool": "prefork"})
        prefork.start_worker("two", concurrency=1, options=("-E",))
        ids, last = send_some(prefork, "last")
        prefork.effects.open_gate("last")
        assert last.get(timeout=20) == "last"
        assert of_shift == heard(monitor, ids)
