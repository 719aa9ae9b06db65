"""The result backend is best effort, unless it is on the ledger's Redis server.

While it is away, an attempt that has done its work waits for it; what it did is not done again.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import DEAD, RECORD, WORKERS, wait_until_settled
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@pytest.fixture
def apart(project: Project, results: RedisServer) -> Project:
    """The project with its results on a Redis of their own, and no loss forgiven."""
    return project.with_settings(result_url=results.url(), reliable={"MAX_LOSSES": 0})


@promise("results-best-effort")
def test_an_outcome_waits_until_it_can_be_stored(apart: Project, results: RedisServer) -> None:
    """A success and a failure are stored when the backend is back; neither body runs again."""
    apart.start_worker("one")
    done = apart.begin("gate", "gate")
    failed = apart.begin("failing_gate", "gate")
    results.stop()
    apart.effects.open_gate("gate")
    for result in (done, failed):
        wait_for(lambda r=result: apart.effects.runs(r.id)[0].ended_at, 10, "its body ended")
    ended_at = apart.effects.now()
    wait_for(lambda: apart.effects.now() - ended_at > 3, 5, "several tries")
    client = apart.redis.client()
    assert len(client.keys(RECORD + "*")) == 2
    results.start()
    # What Celery's client had subscribed to is gone with the server: `get` may never hear.
    for result in (done, failed):
        wait_for(result.ready, 15, "its outcome")
    assert done.result == "gate"
    assert "as told" in str(failed.result)
    wait_for(lambda: client.zcard(DEAD) == 1, 10, "the failure is kept")
    assert client.hget(RECORD + failed.id, "letter").startswith(b"failed\n")
    assert [len(apart.effects.runs(r.id)) for r in (done, failed)] == [1, 1]


@pytest.mark.full
@promise("late-changes-nothing")
def test_who_lost_the_task_meanwhile_stores_nothing(apart: Project, results: RedisServer) -> None:
    """The worker freezes as it waits for the backend, and another runs the task."""
    apart = apart.with_settings(reliable={"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1})
    one = apart.start_worker("one", concurrency=1)
    result = apart.begin("follow", ["gate:a", "gate:b"])
    apart.start_worker("two")
    results.stop()
    apart.effects.open_gate("a")
    wait_for(lambda: apart.effects.runs(result.id)[0].ended_at, 10, "its body ended")
    one.freeze()
    wait_for(lambda: len(apart.effects.runs(result.id)) == 2, 20, "the second run")
    one.thaw()
    results.start()
    # The worker is back with a lease of its own, and has had the time to store.
    client = apart.redis.client()
    wait_for(lambda: client.zcard(WORKERS) == 2, 20, "two leases")
    later = [apart.send("work", 0.1) for _ in range(6)]
    for one_more in later:
        one_more.get(timeout=15)
    assert not result.ready()
    apart.effects.open_gate("b")
    assert result.get(timeout=10) == "run 2"
    wait_until_settled(apart.redis, 15)
