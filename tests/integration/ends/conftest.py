"""Projects and workers that know the tasks of these tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.conftest import SOON, Project, Start
from tests.integration.project import awkward as awkward_tasks
from tests.integration.project.ends import add_tasks
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer


@pytest.fixture
def ending(project: Project) -> Project:
    """The project with passes every second."""
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    add_tasks(project.app)
    return project


@pytest.fixture
def start(request: pytest.FixtureRequest, start_worker: Start) -> Start:
    """Start a worker that knows the tasks of `project.ends`; of `ending` where a test has that."""
    if "ending" in request.fixturenames:
        own = request.getfixturevalue("ending")
    else:
        own = request.getfixturevalue("project")
        add_tasks(own.app)

    def one(name: str = "one", **options: Any) -> Worker:
        options = {"project": own, **options}
        return start_worker(name, app="tests.integration.project.ends", **options)

    return one


@pytest.fixture
def apart(ending: Project, results: RedisServer) -> Project:
    """The project with its results on a Redis of their own, and early looks."""
    project = ending.with_settings(result_url=results.url(), reliable=SOON)
    add_tasks(project.app)
    return project


@pytest.fixture
def awkward(project: Project) -> Project:
    """The project with the awkward tasks."""
    project = project.with_settings(
        celery={"accept_content": ["json", "pickle"], "task_compression": "zlib"}
    )
    awkward_tasks.add_tasks(project.app)
    return project


@pytest.fixture
def start_awkward(awkward: Project) -> Start:
    """Start a worker that knows the awkward tasks."""

    def one(name: str = "one", **options: Any) -> Worker:
        return awkward.start_worker(
            name,
            app="tests.integration.project.awkward",
            # Celery refuses pickle as root, which tests in containers often run as.
            environ={"C_FORCE_ROOT": "yes"},
            **options,
        )

    return one


@pytest.fixture
def awkward_worker(start_awkward: Start) -> Worker:
    """One worker that knows them."""
    return start_awkward()
