"""What a worker that cannot work says: one paragraph, with what to change, and it does not
start.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import refusal


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"LEASE_SECOND": 10}, ["LEASE_SECOND", "LEASE_SECONDS"]),
        ({"MAX_LOSSES": "three"}, ["MAX_LOSSES", "three"]),
        ({"LEASE_SECONDS": 2, "SWEEP_SECONDS": 5}, ["LEASE_SECONDS", "SWEEP_SECONDS", "2", "5"]),
    ],
)
def test_wrong_settings(settings: dict[str, Any], words: list[str], project: Project) -> None:
    said = refusal(project.with_settings(reliable=settings).start_worker(wait=False))
    assert all(word in said for word in words), said


def test_a_redis_that_is_not_there_and_is_not_waited_for(project: Project) -> None:
    url = f"redis://:secret@127.0.0.1:{project.redis.port}/0"
    project.redis.stop()
    impatient = project.with_settings(
        reliable={"REDIS_URL": url}, celery={"broker_connection_retry_on_startup": False}
    )
    said = refusal(impatient.start_worker(wait=False))
    assert str(project.redis.port) in said
    assert "REDIS_URL" in said
    assert "secret" not in said


def test_a_list_of_brokers_with_a_ledger_elsewhere(
    project: Project, start_redis: StartRedis
) -> None:
    first, second = start_redis(), start_redis()
    listed = project.with_settings(
        broker_url=f"{first.url()};{second.url()}",
        reliable={"REDIS_URL": project.redis.url(), "ETA_HORIZON_SECONDS": 2},
    )
    first.stop()
    worker = listed.start_worker("one")
    assert listed.send("work", 0.01).get(timeout=20) == "worked"
    # What a pass sends goes to the one that is there, too.
    parked = listed.send("work", 0.01, countdown=3)
    assert parked.get(timeout=20) == "worked"
    assert worker.is_running
