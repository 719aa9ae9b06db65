"""The worst moments: a fork beside a pass, and a process that hangs as it starts."""

from __future__ import annotations

import os
import signal

import pytest

from tests.integration.conftest import Project
from tests.integration.project.moments import HANG, KILL_WHILE_LOCKED
from tests.integration.project.tasks import Broken
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


APP = "tests.integration.project.moments"


def test_a_process_that_is_forked_beside_a_pass_hangs_in_none_of_its_locks(
    project: Project,
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    project.start_worker("one", app=APP, concurrency=1)
    pid = project.effects.run_of(project.send("work", 0.0).id).pid
    project.effects.client.set(KILL_WHILE_LOCKED, pid)
    wait_for(
        lambda: not project.effects.client.exists(KILL_WHILE_LOCKED), 15, "a pass to kill from"
    )

    # What a task returns is stored with its settlement; a failure goes through Celery's backend.
    after = project.send("failing")

    with pytest.raises(Broken):
        after.get(timeout=15)
    assert project.effects.run_of(after.id).pid != pid


def test_a_worker_ends_though_a_process_hangs_as_it_starts(project: Project) -> None:
    """Celery kills such a process, but not always while it waits for the end of all of them."""
    worker = project.start_worker("one", app=APP, concurrency=1)
    (child,) = worker.children()
    project.effects.client.set(HANG, "yes")
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: set(worker.children()) - {child}, 10, "another process")

    worker.signal_main(signal.SIGTERM)

    worker.wait_until_ended(30)
