"""Time never duplicates a task: far ETAs, long tasks, time to run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import RECORD, wait_until_gone
from tests.integration.project.awkward import add_tasks
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def hasty(project: Project) -> Project:
    """The project with a short horizon, and with a visibility timeout that redelivers soon."""
    project = project.with_settings(
        reliable={"ETA_HORIZON_SECONDS": 3},
        celery={
            "broker_transport_options": {
                "visibility_timeout": 2,
                "unacked_restore_interval": 1,
                "unacked_restore_throttle": 1,
            }
        },
    )
    add_tasks(project.app)
    return project


@pytest.fixture
def start(hasty: Project) -> Callable[[str], Worker]:
    """Start a worker of the hasty project."""

    def one(name: str) -> Worker:
        return hasty.start_worker(name, app="tests.integration.project.awkward")

    return one


def state(redis_server: RedisServer, task_id: str) -> bytes | None:
    """The state of the task's record."""
    return redis_server.client().hget(RECORD + task_id, "state")


def test_a_stuck_attempt_is_taken_from_its_worker(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    start("one")
    result = hasty.send("stuck_once")
    assert result.get(timeout=20) == "run 2"
    first, second = hasty.effects.runs(result.id)
    assert second.started_at - first.started_at >= 2
    # A pass takes it, the worker stops it and says so, a pass sends it again.
    assert second.started_at - first.started_at <= 2 + 10
    assert not hasty.effects.overlaps()
    wait_for(lambda: not _is_alive(first.pid), 10, "the stuck process is gone")
    wait_until_gone(hasty.redis, result.id)


def test_touching_keeps_an_attempt_and_the_warning_comes_in_time(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    start("one")
    result = hasty.send("touching", 6.0)
    assert result.get(timeout=20) == "touched"
    assert len(hasty.effects.runs(result.id)) == 1
    # Touched by the warning's receiver alone, each time with some time left.
    left = [float(text) for text in hasty.effects.client.lrange("warned", 0, -1)]
    assert len(left) >= 2
    assert all(0 < seconds <= 0.6 for seconds in left)
    wait_until_gone(hasty.redis, result.id)


def _is_alive(pid: int) -> bool:
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
