"""Processes of a prefork pool take their own messages: what they take, and what happens to it."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded, TimeLimitExceeded

from celery_reliable.broker import take_text
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, record_of, wait_until_settled
from tests.integration.monitoring import Monitor, monitoring
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)


def in_shift(project: Project, *what: Any, **options: Any) -> tuple[Any, int]:
    """A task that a process has taken by itself, and that process.  *what*: its name, and what it
    is told.
    """
    result = project.begin(*what, **options)
    assert took_by_itself(project, result), what
    return result, project.effects.run_of(result.id).pid


def took_by_itself(project: Project, result: Any) -> bool:
    """Whether the process has taken it that runs it: who takes a message claims its task."""
    pid = project.effects.run_of(result.id).pid
    return record_of(project.redis, result.id).get("pid") == str(pid)


def ran_once(project: Project, results: list[Any]) -> None:
    """Assert that these have run once, and that no attempt was taken and forgotten."""
    assert_each_ran_once(project.effects, [one.id for one in results])
    assert {run.attempt for one in results for run in project.effects.runs(one.id)} <= {1, None}


def test_what_a_process_took_survives_its_worker(project: Project) -> None:
    one = project.start_worker("one", concurrency=1)
    result, pid = in_shift(project, "gate", "door")
    assert [int(record_of(project.redis, result.id)["pid"])] == one.children() == [pid]
    behind = [project.send("work", 0) for _ in range(5)]
    one.kill_group()
    project.start_worker("two", concurrency=1)
    project.effects.open_gate("door")
    assert result.get(timeout=40) == "door"
    assert [run.attempt for run in project.effects.runs(result.id)] == [1, 2]
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(project.effects, [other.id for other in behind])
    wait_until_settled(project.redis, 10)


def test_a_step_that_is_lost_is_repeated(project: Project, proxy: RedisProxy) -> None:
    project.with_settings(broker_url=proxy.url()).start_worker(concurrency=1)
    step = together(script("settle"), taking_script(take_text())).sha
    for drop in (proxy.drop_request, proxy.drop_reply):
        # A process proves by one task that it can settle so.
        before, _ = in_shift(project, "gate", f"before {drop.__name__}")
        result = project.send("gate", drop.__name__)
        project.effects.open_gate(f"before {drop.__name__}")
        project.effects.run_of(result.id)
        behind = [project.send("work", 0) for _ in range(3)]
        rule = drop(script=step, times=2)
        project.effects.open_gate(drop.__name__)
        for one in [before, result, *behind]:
            one.get(timeout=20)
        rule.wait(2)
        wait_until_settled(project.redis, 10)
        ran_once(project, [before, result, *behind])


def test_processes_take_each_kind_of_task(project: Project, stock_project: Project) -> None:
    """And the pool grows while tasks wait for it."""
    kinds: list[tuple[Project, str, dict[str, Any]]] = [
        (project, "gate", {"countdown": 1}),
        (project, "gate", {"expires": 60}),
        (project, "gate", {"time_limit": 60, "soft_time_limit": 50}),
        (project, "gate", {"compression": "zlib"}),
        (project, "gate", {"stamped_headers": ["customer"], "customer": "one"}),
        # Published without the package.
        (stock_project, "gate", {}),
    ]
    one = project.start_worker("one", options=(f"--autoscale={len(kinds) + 1},1",))
    object_of, pid = in_shift(project, "locked_gate", "thing", "door")
    assert one.children() == [pid]
    results = [of.send(name, "door", **options) for of, name, options in kinds]
    behind = [project.send("work", 0.05) for _ in range(20)]
    for result in results:
        project.effects.run_of(result.id)
        assert "." in record_of(project.redis, result.id)["token"]
    assert len(one.children()) == len(kinds) + 1

    project.effects.open_gate("door")

    for result in [object_of, *results, *behind]:
        result.get(timeout=30)
    wait_until_settled(project.redis, 10)
    ran_once(project, [object_of, *results, *behind])


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "of_one"), [("round_robin", {2, 3, 4}), ("priority", {0, 6})])
def test_queues_take_turns_in_a_process_unless_they_are_not_to(
    project: Project, strategy: str, of_one: set[int]
) -> None:
    options = {"queue_order_strategy": strategy}
    project = project.with_settings(celery={"broker_transport_options": options})
    project.start_worker(concurrency=1, options=("-Q", "a,b"))
    in_shift(project, "gate", "door", queue="a")
    of_a, of_b = ([project.send("work", 0, queue=queue).id for _ in range(6)] for queue in "ab")

    project.effects.open_gate("door")

    for task_id in [*of_a, *of_b]:
        wait_for(lambda i=task_id: project.effects.finished(i), 20, "all have run")
    order = [run.task_id for run in project.effects.runs() if run.task_id in {*of_a, *of_b}]
    assert sum(one in of_a for one in order[:6]) in of_one


def test_what_is_revoked_or_has_expired_does_not_begin(
    project: Project, stock_project: Project
) -> None:
    """Whoever published it.  Of those that were published without the package only the worker
    knows, and the processes ask it.
    """
    project.start_worker("one", concurrency=1)
    both, control = (project, stock_project), stock_project.app.control
    in_shift(project, "gate", "door")
    stamp = {"stamped_headers": ["customer"], "customer": "one"}
    called_off = [one.send("work", 0) for one in both]
    stamped = [one.send("work", 0, **stamp) for one in both]
    expired = [one.send("work", 0, expires=1) for one in both]
    expires_at = project.effects.now() + 1
    # More than a few, of whatever else.
    ids = [*(one.id for one in called_off), *(f"another {n}" for n in range(500))]
    assert control.revoke(ids, reply=True, limit=1, timeout=10)
    assert control.revoke_by_stamped_headers({"customer": "one"}, reply=True, limit=1, timeout=10)
    wait_for(lambda: project.effects.now() > expires_at, 5, "their expiry")
    later = [one.send("work", 0) for one in both]

    project.effects.open_gate("door")

    for result in later:
        assert result.get(timeout=20) == "worked"
    for result in [*called_off, *stamped, *expired]:
        wait_for(lambda r=result: r.state == "REVOKED", 20, "it is revoked")
        assert not project.effects.runs(result.id)
    wait_until_settled(project.redis, 20)


def test_what_a_remote_command_forbids_does_not_begin_in_a_shift_that_lasts(
    project: Project,
) -> None:
    """The worker answers the command while its process is about to take the next task."""
    project.start_worker("one", concurrency=1, options=("-Q", "a,b"))
    control = project.app.control
    in_shift(project, "gate", "one", queue="b")
    cancelled = project.send("work", 0, queue="a")
    assert control.cancel_consumer("a", reply=True, limit=1, timeout=10)
    project.effects.open_gate("one")
    assert project.send("work", 0, queue="b").get(timeout=20) == "worked"
    assert not project.effects.runs(cancelled.id)

    in_shift(project, "gate", "two", queue="b")
    stamp = {"stamped_headers": ["customer"], "customer": "one"}
    stamped = project.send("work", 0, queue="b", **stamp)
    assert control.revoke_by_stamped_headers({"customer": "one"}, reply=True, limit=1, timeout=10)
    project.effects.open_gate("two")
    wait_for(lambda: stamped.state == "REVOKED", 20, "it is revoked")
    assert not project.effects.runs(stamped.id)


def test_what_a_worker_remembers_as_revoked_from_before_its_start_does_not_begin(
    project: Project, stock_project: Project, tmp_path: Path
) -> None:
    """It was published without the package: nobody else knows."""
    options = ("--statedb", str(tmp_path / "state"))
    one = project.start_worker("one", options=options)
    assert project.app.control.revoke("remembered", reply=True, limit=1, timeout=10)
    assert one.stop() == 0
    remembered, other = (stock_project.send("work", 0, task_id=i) for i in ("remembered", "other"))

    project.start_worker("two", concurrency=1, options=options)

    assert other.get(timeout=20) == "worked"
    assert not project.effects.runs(remembered.id)


def test_a_pool_grows_at_once_with_what_its_processes_take(project: Project) -> None:
    """Before the main process takes what nobody could take for a second."""

    def is_at_once(name: str) -> bool:
        one = project.start_worker(name, options=("--autoscale=2,1", "-Q", name))
        in_shift(project, "gate", "door", queue=name)
        result = project.begin("gate", "door", queue=name)
        assert len(one.children()) == 2
        return took_by_itself(project, result)

    # A machine that is busy may need longer than that for the process.
    assert any(is_at_once(name) for name in ("one", "two", "three"))


@pytest.mark.full
def test_a_shift_that_no_process_was_handed_as_the_connection_was_lost_is_no_shift(
    project: Project,
) -> None:
    """Else its process would have nothing to do any more."""
    project = project.with_settings(celery={"worker_proc_alive_timeout": 60})
    trap = {"TRAP": "comes up late"}
    one = project.start_worker("one", options=("--autoscale=2,1",), environ=trap)
    in_shift(project, "gate", "door")
    behind = project.send("work", 0)
    wait_for(lambda: len(one.children()) == 2, 10, "a process that is not up")

    project.redis.client().client_kill_filter(_type="normal", skipme=True)
    wait_for(lambda: project.app.control.ping(timeout=1, limit=1), 20, "it is connected again")
    project.effects.open_gate("up")

    assert behind.get(timeout=20) == "worked"


def test_a_request_class_of_ones_own_sees_what_it_sees_in_celery(project: Project) -> None:
    project.start_worker("one", concurrency=1)
    ids: dict[str, list[str]] = {}
    for name in ("seen", "plain_seen"):
        ids[name] = [
            project.send(name, steps, 0).id
            for steps in (["finish"], ["fail"], ["retry", "finish"], ["gate:door"])
        ]
        project.effects.run_of(ids[name][-1])
        project.effects.open_gate("door")
        project.app.AsyncResult(ids[name][-1]).get(timeout=20)
        retried = project.app.AsyncResult(ids[name][2])
        wait_for(lambda r=retried: r.state == "SUCCESS", 20, "a retry")

    def seen(name: str) -> list[list[str]]:
        rows = [json.loads(row) for row in project.effects.client.lrange("seen", 0, -1)]
        return [sorted(what for of, what in rows if of == one) for one in ids[name]]

    # It is told of the last acknowledgement after the task's end can be seen.
    wait_for(lambda: seen("seen") == seen("plain_seen"), 10, "it sees the same")
    assert ["accepted", "acknowledged", "failed Broken"] in seen("seen")


@pytest.mark.full
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_task_that_was_looked_at_takes_no_room_once_it_has_ended(
    project: Project, is_killed: bool
) -> None:
    """The worker may hold one message: it would take no other any more."""
    project = project.with_settings(celery={"worker_prefetch_multiplier": 1})
    one = project.start_worker(concurrency=1)
    first, _ = in_shift(project, "gate", "first")
    second = project.send("gate", "second")
    (answer,) = project.app.control.broadcast("active", reply=True, limit=1, timeout=10)
    assert [[task["id"] for task in tasks] for tasks in answer.values()] == [[first.id]]

    project.effects.open_gate("first")
    pid = project.effects.run_of(second.id).pid
    if is_killed:
        one.kill_child(pid)
    project.effects.open_gate("second")

    for result in (first, second):
        result.get(timeout=20)
    # After the last shift.
    assert project.send("work", 0).get(timeout=20) == "worked"


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
    project: Project, option: tuple[str, ...], n_tasks: int, of_each: list[int]
) -> None:
    project.start_worker(concurrency=1, options=option)
    results, pids = [], []
    for number in range(n_tasks):
        result, pid = in_shift(project, "gate", f"gate {number}")
        project.effects.open_gate(f"gate {number}")
        assert result.get(timeout=20) == f"gate {number}"
        results.append(result)
        pids.append(pid)
    ran_once(project, results)
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == of_each
    wait_until_settled(project.redis, 10)


@pytest.mark.parametrize(
    ("of_worker", "of_call", "error"),
    [
        ((), {"time_limit": 1}, TimeLimitExceeded),
        ((), {"soft_time_limit": 1}, SoftTimeLimitExceeded),
        pytest.param(("--time-limit", "2"), {}, TimeLimitExceeded, marks=pytest.mark.full),
        pytest.param(("--soft-time-limit", "2"), {}, SoftTimeLimitExceeded, marks=pytest.mark.full),
    ],
)
def test_a_time_limit_ends_a_task_of_a_shift(
    project: Project, of_worker: tuple[str, ...], of_call: dict[str, Any], error: type[Exception]
) -> None:
    one = project.start_worker(concurrency=1, options=of_worker)
    result, pid = in_shift(project, "gate", "door", **of_call)
    behind = [project.send("work", 0) for _ in range(5)]
    with pytest.raises(error):
        result.get(timeout=20)
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert_each_ran_once(project.effects, [other.id for other in behind])
    assert len(project.effects.runs(result.id)) == 1
    # Of the soft limit its process lives on.
    assert (one.children() == [pid]) is (error is SoftTimeLimitExceeded)


@pytest.mark.full
def test_limits_that_are_set_while_it_runs_hold_for_the_next_tasks(project: Project) -> None:
    project.start_worker(concurrency=1)
    before, _ = in_shift(project, "gate", "door")
    control = project.app.control
    assert control.rate_limit("project.work", "2/s", reply=True, limit=1, timeout=10)
    assert control.time_limit("project.gate", hard=1, reply=True, limit=1, timeout=10)
    limited = project.send("gate", "shut")
    results = [project.send("work", 0) for _ in range(5)]

    project.effects.open_gate("door")

    assert before.get(timeout=20) == "door"
    with pytest.raises(TimeLimitExceeded):
        limited.get(timeout=30)
    wait_for(lambda: all(project.effects.finished(one.id) for one in results), 30, "all have run")
    starts = sorted(project.effects.starts(one.id)[0] for one in results)
    # The bucket has one token at first, and may count a moment differently than the server.
    assert all(later - one > 0.3 for one, later in list(pairwise(starts))[1:])


#: What differs from run to run.
OWN = {"uuid", "root_id", "clock", "timestamp", "local_received", "runtime", "pid", "hostname"}
#: In ours the frames of the package are, too.
OWN.add("traceback")
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


@pytest.mark.full
def test_a_monitor_hears_of_a_shift_what_it_hears_of_celery(
    project: Project, stock_project: Project
) -> None:
    found = []
    with monitoring(project.app) as monitor:
        for one in (project, stock_project):
            worker = one.start_worker(concurrency=1, options=("-E",))
            held = one.begin("gate", "door")
            ids = {"work": one.send("work", 0).id, "failing": one.send("failing").id}
            project.effects.open_gate("door")
            held.get(timeout=20)
            found.append(heard(monitor, ids))
            project.effects.close_gate("door")
            worker.stop()
    of_shift, of_celery = found
    assert {name: [event["type"] for event in events] for name, events in of_shift.items()} == {
        name: ["task-received", "task-started", end] for name, end in ENDS.items()
    }
    assert of_shift == of_celery
