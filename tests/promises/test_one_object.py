"""One object at a time.

Tasks with the same ``object_id`` never overlap. With ``unique="queued"`` one of many calls for one
object is published, and all have its result.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.integration.conftest import Project
from tests.integration.figures import (
    LOCKS,
    RECORD,
    wait_until_free,
    wait_until_gone,
    wait_until_settled,
)
from tests.integration.project.tasks import ONCE_SECONDS
from tests.promises.conftest import Letters
from tests.support.processes import REPOSITORY, Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for


def call(project: Project, threads: int, calls: int) -> int:
    """Let a process call the task with so many threads, so often each; return its exit code."""
    arguments = '["object", ["gate:gate"]]'
    words = ("tests.integration.calling", "unique", arguments, threads, calls)
    command = [sys.executable, "-m", *map(str, words)]
    environ = project.environ("", {})
    return subprocess.run(command, cwd=REPOSITORY, env=environ, timeout=60, check=False).returncode


@promise("one-object")
def test_fifty_publications_of_one_object_never_overlap(shared: Project) -> None:
    """With `on_conflict="skip"` those that find it taken do not run."""
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda _: shared.send("locked", "object", 0.05), range(50)))
    wait_until_free(shared.redis)
    assert not shared.effects.overlaps("object")
    ran = [r for r in results if shared.effects.runs(r.id)]
    assert ran
    assert all(len(shared.effects.runs(r.id)) == 1 for r in ran)


@promise("one-object")
def test_a_killed_holder_walks_back_into_its_lock_as_soon_as_it_is_recovered(
    project: Project, workers: dict[str, Worker]
) -> None:
    """A task that is lost keeps its object, whether its process or its worker was killed."""
    holder = project.send("locked_gate", "object", "gate")
    first = project.effects.run_of(holder.id)
    workers[first.worker.partition("@")[0]].kill_child(first.pid)
    second = project.effects.run_of(holder.id, 2, timeout_seconds=10)
    workers[second.worker.partition("@")[0]].kill_group()
    killed_at = project.effects.now()
    skipped = project.send("locked_gate", "object", "gate")
    wait_for(lambda: len(project.effects.runs(holder.id)) == 3, 10, "the holder runs again")
    assert project.effects.starts(holder.id)[2] - killed_at <= 8
    project.effects.open_gate("gate")
    assert holder.get(timeout=10) == "object"
    assert not project.effects.runs(skipped.id)
    free = project.send("locked", "object", 0.01)
    assert free.get(timeout=10) == "object"
    wait_until_free(project.redis)


@promise("one-object")
def test_on_conflict_retry_runs_all_one_after_the_other(shared: Project) -> None:
    """Waiting for the object costs no retry and no loss."""
    results = [shared.send("locked_retry", "object", 0.2) for _ in range(5)]
    for result in results:
        assert result.get(timeout=60) == "object"
    assert not shared.effects.overlaps("object")
    # Neither budget was spent: each body ran once, and those that waited spent no number.
    runs = [run for r in results for run in shared.effects.runs(r.id)]
    assert len(runs) == len(results)
    assert [(run.attempt, run.retries, run.redelivered) for run in runs] == [(1, 0, False)] * 5
    wait_until_free(shared.redis)


@promise("one-object")
def test_a_lost_task_has_its_object_until_it_has_run_again(soon: Project) -> None:
    """Each call meanwhile is answered with its id."""
    worker = soon.start_worker("one")
    first = soon.begin("unique", "object", ["gate:first", "gate:second"])
    worker.kill_group()
    assert soon.send("unique", "object").id == first.id
    soon.start_worker("two")
    assert soon.send("unique", "object").id == first.id
    soon.effects.run_of(first.id, 2)
    assert soon.send("unique", "object").id == first.id
    soon.effects.open_gate("second")
    assert first.get(timeout=10) == "run 2"
    wait_until_free(soon.redis)
    assert [run.attempt for run in soon.effects.runs()] == [1, 2]


@promise("one-object")
def test_one_of_fifty_calls_runs_and_all_have_its_result(shared: Project) -> None:
    """Three processes call at once, with many threads."""
    with ThreadPoolExecutor(7) as threads:
        callers = [threads.submit(call, shared, *sizes) for sizes in ((4, 5), (20, 1))]
        results = list(
            threads.map(lambda _: shared.send("unique", "object", ["gate:gate"]), range(10))
        )
    assert [caller.result() for caller in callers] == [0, 0]
    called = [one.decode() for one in shared.effects.client.lrange("called", 0, -1)]
    assert len(called + results) == 50
    (task_id,) = {*called, *(result.id for result in results)}
    assert shared.redis.client().keys(RECORD + "*") == [(RECORD + task_id).encode()]
    shared.effects.open_gate("gate")
    assert {result.get(timeout=20) for result in results} == {"run 1"}
    wait_until_free(shared.redis)
    assert [run.task_id for run in shared.effects.runs()] == [task_id]
    with shared.redis.client(1) as stored:
        assert len(stored.keys("celery-task-meta-*")) == 1
    wait_until_settled(shared.redis, 5)


@promise("one-object")
def test_a_success_is_the_answer_until_its_time_is_up(shared: Project) -> None:
    """`once_for_seconds`: calls within that time return the result that is there."""
    client = shared.redis.client()
    first = shared.send("once", "object")
    assert first.get(timeout=10) == "run 1"
    wait_until_gone(shared.redis, first.id)
    again = shared.send("once", "object")
    ended_at = shared.effects.runs()[0].ended_at
    assert ended_at is not None
    assert shared.effects.now() - ended_at < ONCE_SECONDS
    assert again.id == first.id
    assert again.get(timeout=1) == "run 1"
    # The id itself is no exception.
    assert shared.send("once", "object", task_id=first.id).id == first.id
    assert not client.keys(RECORD + "*")
    assert len(shared.effects.runs()) == 1

    wait_for(lambda: not client.keys(LOCKS), ONCE_SECONDS + 3, "its time is up")
    assert shared.effects.now() - ended_at >= ONCE_SECONDS
    later = shared.send("once", "object")
    assert later.id != first.id
    assert later.get(timeout=10) == "run 1"


@promise("one-object")
def test_no_task_of_the_object_starts_while_one_beyond_its_limit_still_runs(
    shared: Project, letters: Letters
) -> None:
    """Its hard time limit was over, and its process has not ended yet."""
    for ended in (1, 2):
        shared.effects.run_of(shared.send("limited_object", "object").id)
        wait_for(lambda n=ended: len(letters()) == n, 15, "it is a dead letter")
    assert not shared.effects.overlaps("object")
    assert {one["reason"] for one in letters().values()} == {"time_limit"}
    wait_for(lambda: not shared.redis.client().keys(LOCKS), 5, "the lock is freed")
