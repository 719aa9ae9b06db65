"""Projects and workers that some of these tests share."""

from __future__ import annotations

import pytest

from tests.integration.conftest import SOON, Project
from tests.integration.project.awkward import SLOW
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer


@pytest.fixture
def ending(project: Project) -> Project:
    """The project with passes every second."""
    return project.with_settings(reliable={"SWEEP_SECONDS": 1})


@pytest.fixture
def apart(ending: Project, results: RedisServer) -> Project:
    """The project with its results on a Redis of their own, and early looks."""
    return ending.with_settings(result_url=results.url(), reliable=SOON)


@pytest.fixture
def awkward(project: Project) -> Project:
    """The project with pickled and compressed messages."""
    return project.with_settings(
        celery={"accept_content": ["json", "pickle"], "task_compression": "zlib"}
    )


@pytest.fixture
def awkward_worker(awkward: Project) -> Worker:
    """A worker of it; Celery refuses pickle as root, which tests in containers often run as."""
    return awkward.start_worker("one", environ={"C_FORCE_ROOT": "yes", "TRAP": SLOW})
