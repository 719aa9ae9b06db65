"""Workers whose processes take their own messages, and tasks that these have taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.integration.conftest import Project
from tests.integration.figures import record_of
from tests.support.processes import Worker

POOL = "celery_reliable.pool:TaskPool"


def with_shifts(project: Project, celery: Mapping[str, Any] | None = None) -> Project:
    """The project, whose workers have this pool."""
    return project.with_settings(celery={"worker_pool": POOL, **(celery or {})})


def start(pooled: Project, name: str = "one", concurrency: int = 1, **options: Any) -> Worker:
    """Start a worker of a project with this pool."""
    return pooled.start_worker(name, pool="", concurrency=concurrency, **options)


def token_of(pooled: Project, task_id: str) -> str:
    """The token of the claim by which a task runs: one of a shift has its name, and a number."""
    return record_of(pooled.redis, task_id).get("token", "")


def in_shift(
    pooled: Project, of: str = "gate", what: Sequence[str] = ("gate",)
) -> tuple[Any, str, int]:
    """A task at a gate that the only process of a worker has taken by itself; the gate, and that
    process.  *what*: its name, and what it is told before the gate.
    """
    before, opened = pooled.send(*what, f"{of} 0"), f"{of} 0"
    # On a busy machine a shift may be over before its next task is there.
    for number in range(1, 20):
        pooled.effects.run_of(before.id)
        # The main process waits for the first of two, and sees that another waits behind it.
        first, gate = f"{of} {number}", f"{of} {number} in a shift"
        between, result = pooled.send(*what, first), pooled.send(*what, gate)
        pooled.effects.open_gate(opened)
        pooled.effects.run_of(between.id)
        pooled.effects.open_gate(first)
        run = pooled.effects.run_of(result.id)
        if "." in token_of(pooled, result.id):
            return result, gate, run.pid
        before, opened = result, gate
    raise AssertionError("the main process has taken each of them")
