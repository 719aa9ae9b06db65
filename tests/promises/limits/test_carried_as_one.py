"""What ``map``, ``starmap`` or a part of ``chunks`` carries is one task.

If that is lost, it begins again with its first call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.conftest import SOON, Project
from tests.integration.figures import wait_until_settled
from tests.integration.project.carried import add_tasks
from tests.integration.project.factory import Settings
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.redis_server import RedisServer

APP = "tests.integration.project.carried"


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """What a killed worker had is missed soon."""
    return replace(project_settings, reliable=SOON)


Task = Callable[[str], Any]


@pytest.fixture
def task(project: Project) -> Task:
    """The project's tasks by name, those that are carried among them."""
    add_tasks(project.app)
    return project.task


@promise("nothing-lost", "carried-as-one")
def test_each_call_of_a_map_is_made_though_its_worker_is_killed(
    project: Project, task: Task, effects: Effects, redis_server: RedisServer
) -> None:
    """`map`, `starmap`, and the parts of `chunks`: each return one list, as in Celery."""
    project.start_workers("one", "two", "three", "four", app=APP, concurrency=1)
    numbers, doubled = range(6), [0, 2, 4, 6, 8, 10]
    mapped = task("double_one").map(numbers).apply_async()
    starmapped = task("double_of").starmap([(n, "starmap") for n in numbers]).apply_async()
    chunked = task("double_of").chunks([(n, "chunks") for n in numbers], 4).apply_async()
    assert mapped.get(timeout=90) == doubled
    assert starmapped.get(timeout=90) == doubled
    assert chunked.get(timeout=90) == [doubled[:4], doubled[4:]]
    for where in ("map", "starmap", "chunks"):
        made = [int(number) for number in effects.client.lrange(f"calls:{where}", 0, -1)]
        # The one that was lost began again with its first call.
        assert sorted(made) == sorted([*numbers, 0, 1, 2, 3])
    wait_until_settled(redis_server, 30)
