"""What one call says in place of its task's options, with a worker that keeps to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from celery import chain, group

from celery_reliable import TaskExists
from celery_reliable.model import State
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import (
    RECORD,
    is_alive,
    record_of,
    wait_until_gone,
    wait_until_settled,
)
from tests.support.processes import Beat
from tests.support.waiting import wait_for


def is_dead(project: Project, task_id: str, runs: int) -> Any:
    """Wait until it is a dead letter after so many runs."""
    wait_for(
        lambda: record_of(project.redis, task_id).get("state") == State.DEAD.value,
        20,
        f"{task_id} is a dead letter",
    )
    assert len(project.effects.runs(task_id)) == runs


def test_what_a_call_says_is_kept_to(soon: Project, start_beat: Callable[..., Beat]) -> None:
    soon.start_worker("one")
    told, step = soon.task("told_limits"), {"time_to_run_seconds": 50}

    # Its class says no limit.  The call's is kept over a retry, and by members of a canvas.
    once = told.apply_async((None, 1), **step)
    both = group(told.s(None).set(time_to_run_seconds=30), told.s(None)).apply_async()
    before, after = once.get(timeout=20)
    assert 45 < before <= 50
    assert 45 < after <= 50
    (before, after), nothing = both.get(timeout=20)
    assert 25 < before <= 30
    assert 25 < after <= 30
    assert nothing == [None, None]

    # One call may not be lost at all; with a class that allows one loss, and one that allows none.
    frail = soon.task("fragile").apply_async(max_losses=0)
    is_dead(soon, frail.id, 1)
    # A replay is the same call.
    DeadLetters(soon.app).replay(frail.id)
    wait_for(lambda: len(soon.effects.runs(frail.id)) == 2, 20, "it runs again")
    is_dead(soon, frail.id, 2)
    # So may an entry of the beat schedule.
    entry = {"task": "project.fragile", "schedule": 0.5, "options": {"max_losses": 0}}
    known = {one.task_id for one in soon.effects.runs()}
    beat = start_beat(soon, {"frail": entry})
    ticks = wait_for(
        lambda: {one.task_id for one in soon.effects.runs()} - known,
        20,
        "beat has published one",
    )
    beat.stop()
    is_dead(soon, min(ticks), 1)

    # Stuck by the call's own limit, which the sweeper goes by; what is touched is not.
    client = soon.redis.client()
    stuck = soon.send("hurried", 30, time_to_run_seconds=1, max_losses=0)
    slow = soon.send("stuck_once", time_to_run_seconds=600)
    is_dead(soon, stuck.id, 1)
    # Its class gives it 2 seconds, and its call ten minutes.
    assert record_of(soon.redis, slow.id)["attempt"] == "1"
    assert float(client.zscore("{reliable:0}:due", slow.id)) / 1000 > client.time()[0] + 500
    assert client.exists(RECORD + slow.id)


def test_what_becomes_of_a_call_whose_key_is_in_use(shared: Project) -> None:
    key: dict[str, Any] = {"task_id": "invoice-1"}
    first = shared.send("gate", "invoice", **key, if_exists="refuse")
    shared.effects.run_of("invoice-1")
    for how in ("keep", "replay_dead"):
        assert shared.send("gate", "other", **key, if_exists=how) == first
    with pytest.raises(TaskExists, match="is running since") as caught:
        shared.send("gate", "other", **key, if_exists="refuse")
    assert (caught.value.task_id, caught.value.state) == ("invoice-1", "running")
    assert caught.value.since is not None
    shared.effects.open_gate("invoice")
    assert first.get(timeout=10) == "invoice"

    dead = shared.send("failing", "no", task_id="invoice-2", if_exists="keep")
    is_dead(shared, dead.id, 1)
    assert shared.send("failing", "no", task_id=dead.id, if_exists="keep") == dead
    with pytest.raises(TaskExists, match="is a dead letter since"):
        shared.app.send_task("project.failing", ["no"], task_id=dead.id, if_exists="refuse")
    is_dead(shared, dead.id, 1)
    shared.send("failing", "no", task_id=dead.id, if_exists="replay_dead")
    wait_for(lambda: len(shared.effects.runs(dead.id)) == 2, 10, "it runs again")
    # A member of a canvas is published with the id that somebody waits for.
    member = chain(shared.task("add").s(1, 2), shared.task("add").s(3).set(if_exists="refuse"))
    assert member.apply_async().get(timeout=10) == 6


def test_an_id_that_is_no_text_is_made_one_or_refused(shared: Project) -> None:
    """Stock Celery runs a task whose id is a UUID, and `get` answers."""
    work, client = shared.task("work"), shared.redis.client()

    for given, text in {UUID(int=1): str(UUID(int=1))}.items():
        result = work.apply_async((0,), task_id=given)
        assert (result.id, result.get(timeout=20)) == (text, "worked")
        assert [run.task_id for run in shared.effects.runs(text)] == [text]
    wait_until_settled(shared.redis, 20)
    for refused in (5, True, ("a", 1), b"bytes"):
        with pytest.raises(TypeError, match="is a text or a UUID"):
            work.apply_async((0,), task_id=refused)
    with pytest.raises(ValueError, match="timelimit is"):
        work.apply_async((0,), time_limit="30")
    assert not client.keys(RECORD + "*")
    assert client.llen("celery") == 0


def test_an_id_that_is_another_tasks_is_no_repetition(shared: Project) -> None:
    key: dict[str, Any] = {"task_id": "user-17"}
    first, failing = shared.send("gate", "open", **key), shared.task("failing")
    shared.effects.run_of("user-17")

    for how in ({}, {"if_exists": "keep"}, {"if_exists": "replay_dead"}):
        for call in (failing.apply_async, partial(shared.app.send_task, "project.failing")):
            with pytest.raises(TaskExists, match=r"is that of a task project\.gate, ") as caught:
                call(**key, **how)
            assert (caught.value.task_id, caught.value.state) == ("user-17", "running")
    # A worker that cannot publish what follows a task tells so by the task.
    linked = shared.send("add", 1, 2, link=failing.si().set(**key))
    with pytest.raises(TaskExists):
        linked.get(timeout=20)
    # The same call again is that task, and another id is free.
    assert shared.send("gate", "open", **key) == first
    assert shared.send("work", 0).get(timeout=20) == "worked"
    shared.effects.open_gate("open")
    assert first.get(timeout=20) == "open"

    # So has a dead letter, and it stays.
    dead = shared.send("failing", task_id="user-18")
    is_dead(shared, dead.id, 1)
    with pytest.raises(TaskExists, match="which is a dead letter since"):
        shared.send("work", 0, task_id=dead.id)
    assert DeadLetters(shared.app).get(dead.id).name == "project.failing"


def test_a_call_within_a_batch_is_published_at_once_also_if_that_is_aborted(
    shared: Project,
) -> None:
    called: list[Any] = []

    def aborted() -> None:
        with shared.app.producer_pool.acquire(block=True) as producer, producer.batch():
            called.append(shared.send("work", 0, producer=producer))
            raise StopIteration

    with pytest.raises(StopIteration):
        aborted()
    assert called[0].get(timeout=20) == "worked"


def test_a_stuck_attempt_is_taken_and_one_that_is_touched_is_kept(shared: Project) -> None:
    """Both have two seconds to run."""
    stuck, touching = shared.send("stuck_once"), shared.send("touching", 6.0)
    assert stuck.get(timeout=20) == "run 2"
    first, second = shared.effects.runs(stuck.id)
    # A pass takes it, the worker stops it and says so, a pass sends it again.
    assert 2 <= second.started_at - first.started_at <= 2 + 10
    wait_for(lambda: not is_alive(first.pid), 10, "the stuck process is gone")
    assert touching.get(timeout=20) == "touched"
    assert len(shared.effects.runs(touching.id)) == 1
    assert not shared.effects.overlaps()
    for result in (stuck, touching):
        wait_until_gone(shared.redis, result.id)
