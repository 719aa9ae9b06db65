"""Ends that are not success: each leaves its record in the right state, and none comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import celery
import pytest
from celery.result import AsyncResult

from celery_reliable.application import reliable_of
from celery_reliable.deadletters import DeadLetters
from celery_reliable.model import Reason, State
from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project, Start
from tests.integration.figures import leases, passes_finish
from tests.integration.project.ends import add_tasks
from tests.support.effects import Run
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

LEDGER = "{reliable:0}:"


@pytest.fixture
def ending(project: Project) -> Project:
    """The project with passes every second."""
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    add_tasks(project.app)
    return project


@pytest.fixture
def start(ending: Project, start_worker: Start) -> Start:
    """Start a worker that knows the tasks of this module's project."""

    def one(name: str = "one", **options: Any) -> Worker:
        options = {"project": ending, **options}
        return start_worker(name, app="tests.integration.project.ends", **options)

    return one


@dataclass(frozen=True)
class End:
    """How a task ended: what is left of it, the state that Celery stored, how often it ran.

    `left` is "" for nothing, else the reason of its dead letter.
    """

    left: str
    state: str
    runs: int = 1
    losses: int = 0


@dataclass(frozen=True)
class Case:
    """A task that is sent, and how it has to end."""

    end: End
    task: str = "ending"
    options: dict[str, Any] = field(default_factory=dict)
    needs_process: bool = False


SILENT = {"ignore_result": True}
GONE = ""

ENDS = {
    "finish": Case(End(GONE, "SUCCESS")),
    "finish a step first": Case(End(GONE, "SUCCESS")),
    "ignore": Case(End(GONE, "PENDING")),
    "ignore with a state": Case(End(GONE, "DONE_BY_HAND")),
    # Celery 5.6 stores nothing for it.
    "reject": Case(End("rejected", "FAILURE" if celery.VERSION >= (5, 7) else "PENDING")),
    "reject and requeue": Case(End("lost", "FAILURE", 2, 2)),
    "fail": Case(End("failed", "FAILURE")),
    "retry": Case(End("failed", "FAILURE", 3)),
    "retry with an error": Case(End("failed", "FAILURE", 2)),
    "autoretry": Case(End("failed", "FAILURE", 3), "autoretried"),
    "sleep": Case(End("time_limit", "FAILURE"), options={"time_limit": 1}, needs_process=True),
    "sleep too long": Case(
        End("failed", "FAILURE"), options={"soft_time_limit": 1}, needs_process=True
    ),
    "catch the soft limit": Case(
        End(GONE, "SUCCESS"), options={"soft_time_limit": 1}, needs_process=True
    ),
    "sys.exit": Case(End("lost", "FAILURE", 2, 2)),
    "sys.exit with a text": Case(End("lost", "FAILURE", 2, 2)),
    "KeyboardInterrupt": Case(End("lost", "FAILURE", 2, 2)),
    "os._exit": Case(End("lost", "FAILURE", 2, 2), needs_process=True),
    "cancelled": Case(End("lost", "FAILURE", 2, 2)),
    "unserialisable": Case(End("failed", "FAILURE")),
    "unserialisable, ignored": Case(End(GONE, "PENDING"), options=SILENT),
    "unpicklable": Case(End("failed", "FAILURE")),
    "fail, ignored": Case(End("failed", "PENDING"), options=SILENT),
    "once killed, ignored": Case(End(GONE, "PENDING", 2, 0), options=SILENT, needs_process=True),
    "os._exit, ignored": Case(End("lost", "PENDING", 2, 2), options=SILENT, needs_process=True),
}


def end_of(project: Project, task_id: str) -> End | None:
    """How a task has ended; None as long as it has not."""
    record = reliable_of(project.app).ledger.find(task_id)
    state, runs = project.app.AsyncResult(task_id).state, len(project.effects.runs(task_id))
    if record is None:
        return End(GONE, state, runs) if runs or state == "REVOKED" else None
    if record.state is not State.DEAD:
        return None
    letter = DeadLetters(project.app).get(task_id)
    return None if letter.is_owed else End(letter.reason.value, state, runs, letter.losses)


def wait_until_only_ends_are_left(redis_server: RedisServer, dead: int) -> None:
    """Wait until nobody runs, holds, waits for or has to look at any task."""
    client = redis_server.client()
    for key in ("claims:*", "lock:*", "due"):
        wait_for(lambda k=key: not client.keys(LEDGER + k), 15, f"nothing of {key}")
    wait_for(lambda: not client.keys("unacked*"), 15, "every message acknowledged")
    assert client.llen("celery") == 0
    assert len(client.keys(LEDGER + "task:*")) == client.zcard(LEDGER + "dead") == dead


def wait_for_ends(project: Project, expected: dict[str, End], seconds: float = 40) -> None:
    """Wait until each of these tasks has ended, and compare how."""
    for task_id, end in expected.items():
        wait_for(lambda i=task_id: end_of(project, i), seconds, f"{end} of {task_id}")
    assert {task_id: end_of(project, task_id) for task_id in expected} == expected


def assert_none_comes_back(
    project: Project, start: Start, worker: Worker, redis_server: RedisServer, ends: dict[str, End]
) -> None:
    """None of these ends is another one after the end of the worker that has seen them."""
    dead = sum(end.left != GONE for end in ends.values())
    if worker.is_running:
        worker.kill_group()
    start("after", project=project)
    wait_for(lambda: len(leases(redis_server)) == 1, 15, "the dead worker is forgotten")
    passes_finish(redis_server, 2, 15)
    assert project.send("work", 0.01).get(timeout=15) == "worked"
    wait_until_only_ends_are_left(redis_server, dead)
    assert {task_id: end_of(project, task_id) for task_id in ends} == ends


@promise("nothing-lost")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_each_end_is_the_right_one_and_the_last(
    ending: Project, start: Start, redis_server: RedisServer, pool: str
) -> None:
    worker = start(pool=pool)
    cases = {h: c for h, c in ENDS.items() if pool == "prefork" or not c.needs_process}
    ids = {how: ending.send(case.task, how, **case.options).id for how, case in cases.items()}

    for how, task_id in ids.items():
        wait_for(lambda i=task_id: end_of(ending, i), 60, f"the end of {how}")

    assert {how: end_of(ending, i) for how, i in ids.items()} == {
        h: c.end for h, c in cases.items()
    }
    ends = {ids[how]: case.end for how, case in cases.items()}
    wait_until_only_ends_are_left(redis_server, sum(end.left != GONE for end in ends.values()))
    assert_none_comes_back(ending, start, worker, redis_server, ends)


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_task_without_memory_fails_though_it_may_end_its_worker(
    ending: Project, start: Start, redis_server: RedisServer, pool: str
) -> None:
    worker = start(pool=pool)
    result = ending.send("ending", "memory")
    ends = {result.id: End("failed", "FAILURE")}
    wait_for_ends(ending, ends)

    if pool == "prefork":
        worker.wait_until_ended()

    # Nor does it keep a place in a worker that lives on.
    wait_until_only_ends_are_left(redis_server, 1)
    assert_none_comes_back(ending, start, worker, redis_server, ends)


def run_begins(project: Project, result: AsyncResult[Any]) -> Run:
    """The task's first run, once it has begun."""
    return wait_for(lambda: project.effects.runs(result.id), 15, "a run")[0]


def waiting(project: Project, redis_server: RedisServer, **options: Any) -> dict[str, Any]:
    """Send tasks that wait in every place where one can; `options` are those of all of them.

    To a worker of concurrency 1, which the first runs until the gate "busy" is opened.
    """
    send = project.send
    found = {
        "retried": send("flaky", 1, 12, **options),
        "retried far away": send("flaky", 1, 600, **options),
    }
    for result in found.values():
        wait_for(lambda r=result: r.state == "RETRY", 15, "a retry")
    found["running"] = send("gate", "busy", **options)
    run_begins(project, found["running"])
    found["with an ETA"] = send("work", 0.01, countdown=12, **options)
    found["with an ETA far away"] = send("work", 0.01, countdown=600, **options)
    # As many as a worker fetches; what comes then stays in the queue.
    found["fetched"] = send("work", 0.01, **options)
    for _ in range(2):
        send("work", 0.01)
    client = redis_server.client()
    wait_for(lambda: client.llen("celery") == 0, 10, "all are fetched")
    found["in the queue"] = send("work", 0.01, **options)
    return found


def revoked(results: dict[str, Any]) -> dict[str, End]:
    """The ends of tasks that were called off; some had run by then."""
    have_run = ("running", "retried", "retried far away")
    return {r.id: End(GONE, "REVOKED", int(place in have_run)) for place, r in results.items()}


@promise("revocations")
@pytest.mark.parametrize("is_terminated", [False, True])
def test_what_is_revoked_never_runs_though_nobody_remembers_it(
    ending: Project, start: Start, redis_server: RedisServer, is_terminated: bool
) -> None:
    worker = start(concurrency=1)
    results = waiting(ending, redis_server)
    assert redis_server.client().llen("celery") == 1
    if not is_terminated:
        del results["running"]

    ending.app.control.revoke([r.id for r in results.values()], terminate=is_terminated)

    ends = revoked(results)
    wait_for_ends(ending, ends)
    # Its memory dies with the worker, and what it had fetched goes back to the queue.
    ending.effects.open_gate("busy")
    assert_none_comes_back(ending, start, worker, redis_server, ends)


@promise("revocations")
def test_what_is_revoked_by_a_stamp_never_runs(
    ending: Project, start: Start, redis_server: RedisServer
) -> None:
    worker = start(concurrency=1)
    results = waiting(ending, redis_server, stamped_headers=["customer"], customer="one")
    # Who wants to know of a stamp has to see the message: what is parked has not been sent.
    for place in ("running", "retried far away", "with an ETA far away"):
        ending.app.control.revoke(results.pop(place).id, terminate=True)

    ending.app.control.revoke_by_stamped_headers({"customer": "one"}, reply=True, timeout=5)

    ends = revoked(results)
    wait_for_ends(ending, ends)
    wait_until_only_ends_are_left(redis_server, 0)
    assert_none_comes_back(ending, start, worker, redis_server, ends)


def test_what_has_expired_never_runs_wherever_it_waited(
    ending: Project, start: Start, redis_server: RedisServer
) -> None:
    worker = start(concurrency=1)
    sent_at = ending.effects.now()
    results = waiting(ending, redis_server, expires=8)
    assert redis_server.client().llen("celery") == 1
    wait_for(lambda: ending.effects.now() - sent_at > 9, 15, "their expiry")

    # What ran in time is lost, and too late for another run.
    worker.kill_child(run_begins(ending, results["running"]).pid)

    ends = revoked(results)
    wait_for_ends(ending, ends)
    wait_until_only_ends_are_left(redis_server, 0)
    assert_none_comes_back(ending, start, worker, redis_server, ends)


@promise("revocations")
@pytest.mark.parametrize(
    ("pool", "how"),
    [
        ("prefork", "is retried far away"),
        ("threads", "is retried far away"),
        ("prefork", "is lost"),
    ],
)
def test_what_is_revoked_while_it_runs_does_not_run_again(
    ending: Project, start: Start, redis_server: RedisServer, pool: str, how: str
) -> None:
    worker = start(concurrency=1, pool=pool, options=("--prefetch-multiplier", "1"))
    result = ending.send("follow", ["retry:gate", "finish"], 600)
    run = run_begins(ending, result)
    # What is lost goes behind this one.
    ending.send("gate", "later")
    ending.app.control.revoke(result.id, reply=True, timeout=5)

    if how == "is lost":
        worker.kill_child(run.pid)
    ending.effects.open_gate("gate")

    ends = {result.id: End(GONE, "REVOKED")}
    wait_for_ends(ending, ends, 15)
    ending.effects.open_gate("later")
    assert_none_comes_back(ending, start, worker, redis_server, ends)


def test_what_waits_for_its_rate_is_neither_lost_nor_doubled_nor_run_too_late(
    ending: Project, start: Start, redis_server: RedisServer
) -> None:
    worker = start()
    sent_at = ending.effects.now()
    first, called_off = ending.send("rare"), ending.send("rare")
    expired = ending.send("rare", expires=3)
    rated = [ending.send("rated") for _ in range(4)]
    client = redis_server.client()
    wait_for(lambda: client.llen("celery") == 0, 10, "all are fetched")
    wait_for(lambda: len(client.keys(LEDGER + "task:*")) == 5, 10, "one of each has run")

    ending.app.control.revoke(called_off.id, reply=True, timeout=5)
    worker.kill_group()
    wait_for(lambda: ending.effects.now() - sent_at > 3, 10, "its expiry")

    ends = {result.id: End(GONE, "SUCCESS") for result in (first, *rated)}
    ends |= {result.id: End(GONE, "REVOKED", 0) for result in (called_off, expired)}
    worker = start("two")
    wait_for_ends(ending, ends)
    assert_none_comes_back(ending, start, worker, redis_server, ends)


@pytest.fixture
def apart(ending: Project, results: RedisServer) -> Project:
    """The project with its results on a Redis of their own, and early looks."""
    project = ending.with_settings(result_url=results.url(), reliable=SOON)
    add_tasks(project.app)
    return project


@pytest.fixture
def results(start_redis: StartRedis) -> RedisServer:
    """A Redis for results alone."""
    return start_redis()


@promise("results-best-effort")
def test_ends_that_the_main_process_sees_do_not_need_the_result_backend(
    apart: Project, start: Start, results: RedisServer, redis_server: RedisServer
) -> None:
    worker = start(project=apart, concurrency=1)
    stopped = apart.send("locked_gate", "object", "never")
    run_begins(apart, stopped)
    limited = apart.send("ending", "sleep", time_limit=1)
    undead = apart.send("limited")
    rejected = apart.send("ending", "reject")
    expired = apart.send("work", 0.01, countdown=1, expires=0.5)
    results.stop()

    apart.app.control.revoke(stopped.id, terminate=True, reply=True, timeout=5)

    ledger, client = reliable_of(apart.app).ledger, redis_server.client()
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
    assert_none_comes_back(apart, start, worker, redis_server, ends)


def test_a_soft_limit_that_comes_too_late_for_the_body_changes_nothing(
    apart: Project, start: Start, results: RedisServer, redis_server: RedisServer
) -> None:
    worker = start(project=apart)
    result = apart.send("locked_gate", "object", "gate", soft_time_limit=4)
    began_at = run_begins(apart, result).started_at
    results.stop()
    apart.effects.open_gate("gate")
    wait_for(lambda: apart.effects.finished(result.id), 10, "the end of its body")
    assert apart.effects.now() - began_at < 4

    # It comes while the outcome waits for the result backend.
    wait_for(lambda: apart.effects.now() - began_at > 5, 10, "the limit")
    results.start()

    ends = {result.id: End(GONE, "SUCCESS")}
    wait_for_ends(apart, ends)
    wait_until_only_ends_are_left(redis_server, 0)
    assert_none_comes_back(apart, start, worker, redis_server, ends)
