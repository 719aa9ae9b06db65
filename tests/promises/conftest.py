"""What a scenario stands on: a project on a Redis of its own, its workers, and its command line.

The tests of this folder know the package as its users do: they import nothing below its exports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.commands import Run
from tests.integration.conftest import *  # noqa: F403
from tests.integration.conftest import Project
from tests.support.processes import Worker
from tests.support.waiting import wait_for

Letters = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def letters(run: Run) -> Letters:
    """The dead letters by their ids, as `celery … reliable dead-letters list` has them."""

    def listed(**options: Any) -> dict[str, dict[str, Any]]:
        items = run("dead-letters", "list", "--json", **options).json["items"]
        return {one["task_id"]: one for one in items}

    return listed


@pytest.fixture
def busy(project: Project) -> tuple[Worker, list[str]]:
    """A worker of concurrency 2 that runs a task of each kind until the gate "gate" is opened, and
    has fetched another of each kind; and the ids of the four.

    For tests that are marked `keeps_fetched`.
    """
    # After a lost connection Celery may fetch less until the processes are free again.
    worker = project.start_worker("one", options=("--prefetch-multiplier", "8"))
    running = [project.begin("gate", "gate"), project.begin("plain_gate", "gate")]
    waiting = [project.send("work", 0.01), project.send("plain_work", 0.01)]
    client = project.redis.client()
    wait_for(lambda: client.llen("celery") == 0, 10, "the others are fetched")
    return worker, [result.id for result in running + waiting]
