"""The worst moments: a fork beside a pass, a death while another is cleared up, an error between
what is filed and what is delivered, a signal while a lock is held.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from celery import chord

from tests.integration.conftest import Project, Start
from tests.integration.figures import LEDGER, waiting_clients
from tests.integration.project.moments import (
    BEHIND,
    BEHIND_SECONDS,
    FILL,
    HANG,
    INTERRUPT,
    KILL_WHILE_LOCKED,
    QUIT,
)
from tests.integration.project.tasks import Broken
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def start(start_worker: Start) -> Start:
    """Start a worker that is hit when a test says so."""

    def one(name: str = "one", **options: Any) -> Worker:
        return start_worker(name, app="tests.integration.project.moments", **options)

    return one


def first_pid(effects: Effects, task_id: str) -> int:
    """The process of the task's first run, once it has begun."""
    return wait_for(lambda: effects.runs(task_id), 15, f"a run of {task_id}")[0].pid


def test_a_process_that_is_forked_beside_a_pass_hangs_in_none_of_its_locks(
    project: Project, start: Start
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    start(project=project, concurrency=1)
    before = project.send("work", 0.0)
    assert before.get(timeout=15) == "worked"
    pid = first_pid(project.effects, before.id)
    project.effects.client.set(KILL_WHILE_LOCKED, pid)
    wait_for(
        lambda: not project.effects.client.exists(KILL_WHILE_LOCKED), 15, "a pass to kill from"
    )

    # What a task returns is stored with its settlement; a failure goes through Celery's backend.
    after = project.send("failing")

    with pytest.raises(Broken):
        after.get(timeout=15)
    assert first_pid(project.effects, after.id) != pid


def left_behind(redis_server: RedisServer) -> list[bytes]:
    """What remains of the first worker in Redis."""
    keys = redis_server.client().keys("*")
    return [key for key in keys if b"one@" in key and b"pidbox" not in key]


def test_a_cold_stop_waits_for_no_thread_while_the_main_one_has_a_lock(
    project: Project, start: Start
) -> None:
    one = start(pool="threads", concurrency=1)
    running = project.send("work", 0.5)
    first_pid(project.effects, running.id)
    project.effects.client.set(QUIT, 1)
    waiting = project.send("work", 0.0)
    one.wait_until_ended()

    assert not left_behind(project.redis)
    assert running.get(timeout=1) == "worked"
    start("two")
    assert waiting.get(timeout=5) == "worked"
    assert len(project.effects.runs()) == 2


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_POPS") and os.environ.get("TESTS_SHIFTS")),
    reason="a process files what the main process hands it: test_given_messages",
)
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_was_filed_and_not_delivered_is_given_back_by_a_worker_that_ends(
    project: Project, start: Start, pool: str
) -> None:
    one = start(pool=pool)
    assert project.send("work", 0.0).get(timeout=15) == "worked"
    project.effects.client.set(INTERRUPT, 1)
    sent = project.send("work", 0.0)
    one.wait_until_ended()

    assert not left_behind(project.redis)
    start("two")
    assert sent.get(timeout=5) == "worked"
    assert len(project.effects.runs(sent.id)) == 1


@pytest.mark.parametrize("has_lost_its_connection", [False, True])
def test_a_worker_ends_though_a_process_hangs_as_it_starts(
    project: Project, start: Start, has_lost_its_connection: bool
) -> None:
    """Celery kills such a process, but not always while it waits for the end of all of them."""
    worker = start(project=project, concurrency=1)
    (child,) = worker.children()
    if has_lost_its_connection:
        client = project.redis.client()

        def waiting() -> list[str]:
            return waiting_clients(client)

        client.client_kill_filter(_id=wait_for(waiting, 10, "it waits for a message")[0])
        assert project.send("work", 0.0).get(timeout=20) == "worked"
    project.effects.client.set(HANG, "yes")
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: set(worker.children()) - {child}, 10, "another process")

    worker.signal_main(signal.SIGTERM)

    worker.wait_until_ended(30)


@promise("nothing-lost")
@pytest.mark.parametrize("published", ["project.total", "project.listed"])
def test_a_chord_goes_on_whose_end_a_full_server_refuses(
    project: Project, start: Start, published: str
) -> None:
    """By the claim of the first try, the second would be told that somebody else sends the body."""
    start(project=project, concurrency=1)
    project.effects.client.set(FILL, published)
    add, failing, total = (project.task(name) for name in ("add", "failing", "total"))
    is_well = published == "project.total"
    last = add.s(2, 2) if is_well else failing.s()
    body = chord([add.s(1, 1), last])(total.s().on_error(project.task("listed").s()))
    client = project.redis.client()
    wait_for(lambda: client.config_get("maxmemory")["maxmemory"] == "1", 20, "a full server")
    at = project.effects.now()
    wait_for(lambda: project.effects.now() - at > 2, 5, "several tries")

    client.config_set("maxmemory", 0)

    wait_for(body.ready, 8, "the body's outcome")
    assert body.state == ("SUCCESS" if is_well else "FAILURE")
    assert is_well or "ChordError" in repr(body.result)
    wait_for(lambda: not client.keys("celery-taskset-meta-*.s"), 10, "the chord's end")
    ended = "project.total" if is_well else "project.listed"
    n_letters = int(not is_well)
    wait_for(lambda: len(client.keys(f"{LEDGER}task:*")) == n_letters, 10, "an end of every task")
    names = [run.task for run in project.effects.runs()]
    assert [names.count(name) for name in (ended, "project.add")] == [1, 2 if is_well else 1]
    assert len(names) == 3
    client.close()


@pytest.mark.prefork_alone("where nothing waits in a worker, nothing is fetched for later")
def test_a_process_has_its_next_task_before_another_is_fetched(
    project: Project, start: Start
) -> None:
    start(concurrency=1)
    first = project.send("gate", "gate")
    project.effects.run_of(first.id)
    client = project.redis.client()
    others = [project.send("work", 0.0) for _ in range(20)]
    wait_for(lambda: 0 < client.llen("celery") < len(others), 10, "more than a worker fetches")
    project.effects.client.set(BEHIND, first.id)

    project.effects.open_gate("gate")

    assert others[0].get(timeout=15) == "worked"
    ended_at = project.effects.finished(first.id)[0].ended_at
    assert ended_at is not None
    assert project.effects.runs(others[0].id)[0].started_at - ended_at < BEHIND_SECONDS
    wait_for(lambda: not project.effects.client.exists(BEHIND), 5, "a take after that")
    assert [one.get(timeout=15) for one in others] == ["worked"] * len(others)
    client.close()
