"""How attempts end: killed children, poison, retries, replacement, messages from elsewhere."""

from __future__ import annotations

import os
import signal

import pytest
from celery import chain, chord, group

from tests.integration.conftest import Project, Start
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def worker(start_worker: Start) -> Worker:
    """One prefork worker of concurrency 2."""
    return start_worker("one")


@pytest.fixture
def workers(start_worker: Start) -> list[Worker]:
    """Two of them."""
    pair = [start_worker(name, wait=False) for name in ("one", "two")]
    for one in pair:
        one.wait_until_ready()
    return pair


def record(redis_server: RedisServer, task_id: str) -> dict[str, str]:
    """The task's record as it stands in Redis."""
    raw = redis_server.client().hgetall("{reliable:0}:task:" + task_id)
    return {k.decode(): v.decode("utf-8", "replace") for k, v in raw.items()}


def nothing_left(redis_server: RedisServer) -> None:
    """Wait until nothing of any task remains in ledger, queue and rooms."""
    client = redis_server.client()
    wait_for(
        lambda: not client.keys("{reliable:0}:task:*") and not client.keys("unacked:*"),
        10,
        "every record and delivery gone",
    )
    assert client.llen("celery") == 0


def test_a_killed_childs_task_runs_again_within_two_seconds(
    project: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    mate = project.send("gate", "mate")
    wait_for(lambda: effects.runs(mate.id), 10, "the pool mate runs")
    waited = []
    for turn in range(6):
        result = project.send("gate", f"gate-{turn}")
        wait_for(lambda r=result: effects.runs(r.id), 10, "the first run")
        os.kill(effects.runs(result.id)[0].pid, signal.SIGKILL)
        killed_at = effects.now()
        wait_for(lambda r=result: len(effects.runs(r.id)) == 2, 10, "the second run")
        waited.append(effects.starts(result.id)[1] - killed_at)
        assert record(redis_server, result.id)["losses"] == "1"
        effects.open_gate(f"gate-{turn}")
        result.get(timeout=10)
    print("seconds from the child's death to the re-run:", [round(w, 2) for w in waited])
    assert max(waited) <= 2
    # The pool mate went on, and was charged nothing.
    assert "losses" not in record(redis_server, mate.id)
    effects.open_gate("mate")
    mate.get(timeout=10)
    assert len(effects.runs(mate.id)) == 1
    nothing_left(redis_server)


def test_a_child_that_dies_within_milliseconds_is_noticed_within_two_seconds(
    project: Project, worker: Worker, effects: Effects
) -> None:
    waited = []
    for _ in range(6):
        result = project.send("poison_times", 1)
        assert result.get(timeout=15) == "run 2"
        first, second = effects.starts(result.id)
        waited.append(second - first)
    print("seconds between the runs:", [round(w, 2) for w in waited])
    assert max(waited) <= 2


@promise("poison-stops")
def test_poison_stops_after_max_losses_and_one_runs(
    project: Project, workers: list[Worker], effects: Effects, redis_server: RedisServer
) -> None:
    poison = project.send("poison")
    good = [project.send("work", 0.05) for _ in range(20)]
    for result in good:
        assert result.get(timeout=20) == "worked"
    wait_for(lambda: record(redis_server, poison.id).get("state") == "dead", 20, "buried")
    assert len(effects.runs(poison.id)) == 4
    assert [run.attempt for run in effects.runs(poison.id)] == [1, 2, 3, 4]
    wait_for(lambda: poison.state == "FAILURE", 5, "Celery was told")
    assert record(redis_server, poison.id)["reason"] == "lost"
    assert not effects.overlaps()
    assert all(len(effects.runs(r.id)) == 1 for r in good)


@promise("poison-stops")
def test_losses_and_retries_are_separate_budgets(
    project: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    steps = ["kill", "retry", "kill", "retry", "finish"]
    result = project.send("follow", steps, max_retries=2)
    assert result.get(timeout=30) == "run 5"
    assert [run.attempt for run in effects.runs(result.id)] == [1, 2, 3, 4, 5]
    nothing_left(redis_server)


@promise("never-two")
def test_retries_at_once_run_in_order_and_never_twice(
    project: Project, workers: list[Worker], effects: Effects, redis_server: RedisServer
) -> None:
    results = [project.send("flaky", 10, 0, 20) for _ in range(5)]
    for result in results:
        assert result.get(timeout=30) == "run 11"
        # In order, none refused and none doubled.  (A retry may begin while the body that asked for
        # it still unwinds: it was closed by asking.)
        assert [run.attempt for run in effects.runs(result.id)] == list(range(1, 12))
        assert effects.starts(result.id) == sorted(effects.starts(result.id))
    nothing_left(redis_server)


def test_an_old_publication_redelivered_after_a_retry_is_dropped(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    result = project.send("flaky", 1, 3600)
    old = client.lindex("celery", 0)
    start_worker("one")
    wait_for(lambda: result.state == "RETRY", 15, "the retry")
    before = record(redis_server, result.id)
    client.lpush("celery", old)
    later = project.send("work", 0.01)
    later.get(timeout=10)
    assert len(effects.runs(result.id)) == 1
    assert record(redis_server, result.id) == before


def test_a_replacing_chain_ends_with_the_hosts_id(
    project: Project, workers: list[Worker], effects: Effects, redis_server: RedisServer
) -> None:
    result = project.send("replaced", [1, 2, 3, 4])
    assert result.get(timeout=15) == 10
    # The last member runs under the host's id, and its fencing token has grown.
    assert [run.attempt for run in effects.runs(result.id)] == [1, 2]
    nothing_left(redis_server)


def test_canvas_runs_whole(
    project: Project, workers: list[Worker], effects: Effects, redis_server: RedisServer
) -> None:
    add, total = project.task("add"), project.task("total")
    assert chain(add.s(1, 2), add.s(3), add.s(4)).apply_async().get(timeout=15) == 10
    assert group(add.s(n, n) for n in range(5)).apply_async().get(timeout=15) == [0, 2, 4, 6, 8]
    assert chord((add.s(n, n) for n in range(5)), total.s()).apply_async().get(timeout=15) == 20
    nothing_left(redis_server)


def test_a_chord_survives_a_killed_header(
    project: Project, worker: Worker, effects: Effects
) -> None:
    steps = project.task("follow")
    body = project.task("work").si(0.01)
    result = chord([steps.s(["kill", "finish"]), steps.s(["finish"])], body).apply_async()
    assert result.get(timeout=20) == "worked"


def test_a_message_without_our_header_runs_and_is_protected_from_its_claim_on(
    project: Project,
    stock_project: Project,
    worker: Worker,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    # Published by a producer without the package, or before it was adopted.
    result = stock_project.send("poison_times", 1)
    wait_for(lambda: len(effects.runs(result.id)) == 2, 15, "the second run")
    assert [run.attempt for run in effects.runs(result.id)] == [1, 2]
    assert result.get(timeout=10) == "run 2"
    nothing_left(redis_server)


@promise("never-two")
def test_the_same_message_twice_runs_once(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    result = project.send("work", 0.2)
    copy = client.lindex("celery", 0)
    for _ in range(4):
        client.lpush("celery", copy)
    for name in ("one", "two"):
        start_worker(name)
    assert result.get(timeout=15) == "worked"
    wait_for(lambda: client.llen("celery") == 0, 10, "the copies are dropped")
    later = project.send("work", 0.01)
    later.get(timeout=10)
    assert len(effects.runs(result.id)) == 1
    nothing_left(redis_server)


def test_a_failure_for_good_is_a_dead_letter(
    project: Project, worker: Worker, effects: Effects, redis_server: RedisServer
) -> None:
    result = project.send("failing", "on purpose")
    wait_for(lambda: record(redis_server, result.id).get("state") == "dead", 10, "buried")
    letter = record(redis_server, result.id)
    assert letter["reason"] == "failed"
    assert letter["exception"] == "Broken: on purpose"
    assert "raise Broken" in letter["traceback"]
    assert letter["attempt"] == "1"
