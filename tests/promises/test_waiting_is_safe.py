"""Waiting is safe.

An ETA, a countdown or a long run is never delivered twice because of time alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import record_of, wait_until_gone
from tests.integration.project.awkward import add_tasks
from tests.support.processes import Worker
from tests.support.promises import promise
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


@promise("waiting-is-safe")
def test_a_far_eta_is_parked_survives_all_workers_and_fires_once_on_time(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    """It waits in the ledger; the worker that was there at its publication is killed."""
    first = start("one")
    eta = datetime.now(timezone.utc) + timedelta(seconds=9)
    sent_at = hasty.effects.now()
    result = hasty.send("work", 0.01, eta=eta)
    client = hasty.redis.client()
    assert record_of(hasty.redis, result.id)["state"] == "parked"
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


@promise("waiting-is-safe")
def test_long_and_waiting_tasks_run_once_whatever_the_visibility_timeout(
    hasty: Project, start: Callable[[str], Worker]
) -> None:
    """Stock Celery delivers them again after two seconds here."""
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
