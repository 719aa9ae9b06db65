"""Messages that the main process hands to a process of its pool as they came, to be filed there."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import record_of
from tests.integration.shifts import start, token_of, with_shifts
from tests.support.freezing import freeze
from tests.support.processes import Worker
from tests.support.waiting import wait_for

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="where no two steps are one, there are no shifts"
)

#: No pass comes to anybody's help before that.
NO_PASSES = {"SWEEP_SECONDS": 60, "LEASE_SECONDS": 240, "QUEUED_SECONDS": 600}
#: What is given back at once has begun again by then.
SOON_SECONDS = 8.0


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project.with_settings(reliable=NO_PASSES))


def warm(pooled: Project, name: str = "one") -> Worker:
    """A worker of one process that is idle: its shift is over, and the main process waits."""
    worker = start(pooled, name)
    pooled.send("work", 0).get(timeout=10)
    client = pooled.redis.client()
    wait_for(lambda: not client.keys("unacked:*"), 10, "it is acknowledged")
    wait_for(lambda: any("b" in o["flags"] for o in client.client_list()), 10, "it waits")
    return worker


def handed_over(pooled: Project, worker: Worker, name: str = "work", *args: Any) -> tuple[Any, int]:
    """A task that was popped, and handed to the worker's only process, which does not move."""
    (child,) = worker.children()
    freeze(child)
    result = pooled.send(name, *(args or (0,)))
    client = pooled.redis.client()
    wait_for(lambda: not client.exists("celery"), 10, "it is popped")
    return result, child


def ran_once(pooled: Project, result: Any, seconds: float = SOON_SECONDS) -> None:
    """It ran to its end, once, and not as one that was lost."""
    assert result.get(timeout=seconds) == "worked"
    (run,) = pooled.effects.runs(result.id)
    assert run.attempt == 1
    client = pooled.redis.client()
    wait_for(lambda: not client.keys("unacked:*"), 10, "it is acknowledged")
    assert not client.exists("celery")


def test_an_idle_worker_has_the_message_filed_by_the_process_that_runs_its_task(
    pooled: Project,
) -> None:
    worker = warm(pooled)
    result = pooled.send("gate", "open")
    run = pooled.effects.run_of(result.id)
    assert [run.pid] == worker.children()
    token, client = token_of(pooled, result.id), pooled.redis.client()
    (unacked,) = client.keys("unacked:*")
    # Claimed as the first of a shift; the message is filed under the same name.
    assert token.endswith(".1")
    assert client.hkeys(unacked) == [token.encode()]
    assert record_of(pooled.redis, result.id)["pid"] == str(run.pid)
    pooled.effects.open_gate("open")
    assert result.get(timeout=10) == "open"


def test_a_shift_that_was_called_off_before_it_began_gives_the_message_back(
    pooled: Project,
) -> None:
    worker = warm(pooled)
    result, child = handed_over(pooled, worker)
    # Any revocation ends all shifts, so that they begin with what is revoked by now.
    assert pooled.app.control.revoke("another", reply=True, limit=1, timeout=10)
    os.kill(child, signal.SIGCONT)
    ran_once(pooled, result)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_a_worker_that_is_stopped_gives_the_message_back(
    pooled: Project, number: signal.Signals
) -> None:
    worker = warm(pooled)
    result, child = handed_over(pooled, worker)
    worker.signal_main(number)
    os.kill(child, signal.SIGCONT)
    worker.wait_until_ended()
    # Either it was run in time, or it waits for the next worker.
    if not pooled.effects.runs(result.id):
        assert pooled.redis.client().llen("celery") == 1
        start(pooled, "two")
    ran_once(pooled, result)
