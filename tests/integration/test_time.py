"""Time never duplicates a task: far ETAs, long tasks, time to run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from celery.exceptions import TaskRevokedError

from tests.integration.conftest import Project
from tests.integration.figures import RECORD, wait_until_gone
from tests.integration.project.awkward import add_tasks
from tests.support.processes import Worker
from tests.support.promises import promise
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


@promise("waiting-is-safe")
def test_a_far_eta_is_parked_survives_all_workers_and_fires_once_on_time(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    first = start("one")
    eta = datetime.now(timezone.utc) + timedelta(seconds=9)
    sent_at = hasty.effects.now()
    result = hasty.send("work", 0.01, eta=eta)
    client = hasty.redis.client()
    assert state(hasty.redis, result.id) == b"parked"
    # It costs no worker memory and no place in a queue.
    assert client.llen("celery") == 0
    assert not client.keys("unacked:*")
    first.kill_group()
    start("two")
    assert result.get(timeout=20) == "worked"
    assert [run.attempt for run in hasty.effects.runs(result.id)] == [1]
    late = hasty.effects.starts(result.id)[0] - sent_at - 9
    print("seconds after its ETA:", round(late, 2))
    assert -0.2 <= late <= 2
    wait_until_gone(hasty.redis, result.id)


def test_revoking_a_parked_task_leaves_nothing(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    first = start("one")
    result = hasty.send("work", 0.01, countdown=8)
    result.revoke()
    wait_until_gone(hasty.redis, result.id)
    # The workers that heard of it are gone before its time.
    first.kill_group()
    start("two")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=5)
    later = hasty.send("work", 0.01, countdown=8)
    later.get(timeout=20)
    assert not hasty.effects.runs(result.id)


@promise("waiting-is-safe")
def test_long_and_waiting_tasks_run_once_whatever_the_visibility_timeout(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    start("one")
    start("two")
    results = [hasty.send("gate", "gate"), hasty.send("plain_gate", "gate")]
    waiting = [hasty.send("work", 0.01, countdown=2.9), hasty.send("plain_work", 0.01, countdown=8)]
    started_at = hasty.effects.now()
    wait_for(lambda: hasty.effects.now() - started_at > 9, 15, "several visibility timeouts")
    hasty.effects.open_gate("gate")
    for result in results + waiting:
        result.get(timeout=10)
        assert len(hasty.effects.runs(result.id)) == 1
    wait_until_gone(hasty.redis, results[0].id)


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
