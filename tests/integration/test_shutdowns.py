"""A deployment is no death: whatever way workers and pool processes are ended on purpose, nothing
is lost, nothing runs twice to its end, and nothing is charged.
"""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from tests.integration.conftest import ONE_EACH, Project
from tests.integration.figures import RECORD, WORKERS, wait_until_settled
from tests.integration.project.factory import Settings
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

# Far below QUEUED_SECONDS: what is given back is not left for the sweeper to find.
SOON_SECONDS = 6.0

REMAPPED = {"REMAP_SIGTERM": "SIGQUIT"}


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """No loss is forgiven: whatever is charged becomes a dead letter, and its result is missed."""
    return replace(project_settings, reliable={"MAX_LOSSES": 0})


def left_behind(redis_server: RedisServer, name: str) -> list[bytes]:
    """What remains of a worker in Redis: its lease, its claims, its unacked hash."""
    client = redis_server.client()
    own = f"{name}@".encode()
    keys = [key for key in client.keys("*") if own in key and b"pidbox" not in key]
    return keys + [one for one in client.zrange(WORKERS, 0, -1) if own in one]


def losses(redis_server: RedisServer, task_id: str) -> int:
    """The losses in the task's record."""
    return int(redis_server.client().hget(RECORD + task_id, "losses") or 0)


@pytest.mark.keeps_fetched
def test_a_warm_stop_waits_for_what_runs_and_gives_back_the_rest(project: Project) -> None:
    one = project.start_worker("one", options=("--prefetch-multiplier", "4"))
    running = [project.send("gate", "warm") for _ in range(2)]
    for result in running:
        project.effects.run_of(result.id)
    fetched = [project.send("work", 0.01) for _ in range(4)]
    client = project.redis.client()
    wait_for(lambda: client.llen("celery") == 0, 10, "all of them fetched")
    project.start_worker("two")
    assert left_behind(project.redis, "one")
    one.signal_main(signal.SIGTERM)
    asked_at = project.effects.now()
    # Longer than the lease: it is kept while the last task runs.
    wait_for(lambda: project.effects.now() - asked_at > 12, 20, "more than a lease")
    assert one.is_running
    assert [len(project.effects.runs(result.id)) for result in running] == [1, 1]
    project.effects.open_gate("warm")
    assert one.wait_until_ended() == 0
    assert not left_behind(project.redis, "one")
    for result in running + fetched:
        result.get(timeout=10)
        assert [run.attempt for run in project.effects.runs(result.id)] == [1]
    wait_until_settled(project.redis, 10)


@pytest.mark.full
def test_a_soft_stop_waits_for_longer_than_a_lease_and_then_hands_over(project: Project) -> None:
    project = project.with_settings(
        celery={"worker_soft_shutdown_timeout": 12},
        reliable={"MAX_LOSSES": 0, "LEASE_SECONDS": 4, "SWEEP_SECONDS": 1, "STALL_SECONDS": 2},
    )
    one = project.start_worker("one", environ=REMAPPED)
    ends, goes_on = project.send("gate", "soft"), project.send("gate", "long")
    for result in (ends, goes_on):
        project.effects.run_of(result.id)
    project.start_worker("two", options=ONE_EACH)
    one.signal_main(signal.SIGTERM)
    asked_at = project.effects.now()
    wait_for(lambda: project.effects.now() - asked_at > 8, 15, "the stop goes on")
    project.effects.open_gate("soft")
    assert ends.get(timeout=10) == "soft"
    assert one.is_running
    again = project.effects.run_of(goes_on.id, 2)
    assert 12 <= again.started_at - asked_at <= 12 + SOON_SECONDS
    assert losses(project.redis, goes_on.id) == 0
    project.effects.open_gate("long")
    assert goes_on.get(timeout=10) == "long"
    one.wait_until_ended()
    assert not left_behind(project.redis, "one")
    assert [run.attempt for run in project.effects.runs(ends.id)] == [1]
    assert [run.attempt for run in project.effects.runs(goes_on.id)] == [1, 2]
    assert not project.effects.overlaps()
    wait_until_settled(project.redis, 10)
