"""A prefork pool has to fork.

Where its processes would be spawned, a worker refuses to start, and says how to force a fork.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.integration.figures import refusal
from tests.support.promises import promise

SPAWNED = "tests.integration.project.spawned"


@promise("prefork-forks")
def test_a_pool_that_does_not_fork(project: Project) -> None:
    """The worker names the setting."""
    spawning = project.with_settings(celery={"worker_pool_start_method": "spawn"})
    said = refusal(spawning.start_worker(wait=False))
    assert "worker_pool_start_method" in said
    assert "spawn" in said


@promise("prefork-forks")
def test_a_pool_whose_processes_are_spawned_by_default(project: Project) -> None:
    """As on macOS.  What the error says to do helps."""
    pooled = project.with_settings(celery={"worker_pool": "prefork"})
    said = refusal(pooled.start_worker(wait=False, app=SPAWNED, pool=""))
    assert "spawn" in said
    assert "billiard.set_start_method('fork', force=True)" in said
    pooled.start_worker("two", app=SPAWNED, pool="", environ={"FORCE_FORK": "yes"})
    assert project.send("work", 0.01).get(timeout=30) == "worked"
