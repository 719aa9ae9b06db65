"""Claims that are made as a message is filed, for what its worker begins at once."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import is_alive, record_of
from tests.support.freezing import freeze
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")), reason="where no two steps are one, no claim is early"
    ),
]

#: Of messages that are claimed as they leave their queue.
BY_MAIN = pytest.mark.skipif(
    bool(os.environ.get("TESTS_POPS")),
    reason="what is popped is claimed by its process",
)
SLOW = "tests.integration.project.slow"


def claimed(redis_server: RedisServer, task_id: str) -> dict[str, str]:
    """The record, once an attempt is claimed."""

    def found() -> dict[str, str] | None:
        now = record_of(redis_server, task_id)
        return now if now.get("state") == "running" else None

    return wait_for(found, 10, f"a claim of {task_id}")  # type: ignore[return-value]


def warm_up(project: Project) -> None:
    """Have a task run, so that the server knows all scripts, and the worker idle again."""
    project.send("work", 0).get(timeout=10)
    client = project.redis.client()
    wait_for(lambda: not client.keys("unacked:one*"), 10, "it is acknowledged")
    # What was waited for while it was busy would not be claimed; each wait lasts a second.
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 1, 10, "it waits anew")


def frozen_child(worker: Worker) -> int:
    """The worker's only child, which does not move any more."""
    (child,) = worker.children()
    freeze(child)
    return child


@BY_MAIN
def test_a_process_that_has_outlived_its_worker_does_not_begin(project: Project) -> None:
    one = project.start_worker("one", concurrency=1)
    warm_up(project)
    orphan = frozen_child(one)
    result = project.send("gate", "open")
    claimed(project.redis, result.id)
    one.kill_main()
    # The kernel wakes it by itself where its group is orphaned by that.
    with suppress(ProcessLookupError):
        os.kill(orphan, signal.SIGCONT)
    wait_for(lambda: not is_alive(orphan), 20, "the end of the orphan")
    assert not project.effects.runs(result.id)
    project.start_worker("two", concurrency=1)
    project.effects.run_of(result.id)
    project.effects.open_gate("open")
    assert result.get(timeout=10) == "open"
    (run,) = project.effects.runs(result.id)
    assert (run.worker.partition("@")[0], run.attempt) == ("two", 2)


def test_what_is_received_slowly_is_nobody_elses_meanwhile(project: Project) -> None:
    # Many looks fit between its claim and the request that stands behind it.
    quick = project.with_settings(reliable={"SWEEP_SECONDS": 0.1})
    quick.start_worker("one", app=SLOW, environ={"RECEIVE_SECONDS": "0.45"})
    warm_up(quick)
    for _ in range(5):
        result = quick.send("work", 0.5)
        assert result.get(timeout=20) == "worked"
        assert [run.attempt for run in project.effects.runs(result.id)] == [1]
