"""Tasks begin at their ETA, though who wakes them is gone, and though they come too early."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import DUE, LEDGER, record_of, wait_until_gone
from tests.support.promises import promise
from tests.support.waiting import wait_for

WAKER = LEDGER + "waker"


@promise("waiting-is-safe")
@pytest.mark.parametrize("end", ["kill_group", "freeze"])
def test_who_wakes_the_tasks_has_a_successor(project: Project, end: str) -> None:
    workers, client = project.start_workers("one", "two"), project.redis.client()
    waker = wait_for(lambda: client.get(WAKER), 10, "a worker that wakes")
    (name,) = (one for one in workers if waker.startswith(f"{one}@".encode()))
    sent_at = project.effects.now()
    # A frozen worker's wait for a message ends before that.
    result = project.send("work", 0, countdown=2)

    getattr(workers[name], end)()

    assert result.get(timeout=15) == "worked"
    assert client.get(WAKER) not in (waker, None)
    (run,) = project.effects.runs(result.id)
    assert -0.1 <= run.started_at - sent_at - 2 <= 2.5
    assert run.attempt == 1


@promise("waiting-is-safe", "clock-of-redis")
def test_what_comes_to_a_worker_before_its_eta_waits_in_the_ledger_again(project: Project) -> None:
    """A second message of it; and then it itself, as the ledger's clock is set forward."""
    project.start_worker("one")
    client, sent_at = project.redis.client(), project.effects.now()
    result = project.send("work", 0, countdown=4)
    record = record_of(project.redis, result.id)
    due = client.zscore(DUE, result.id)

    client.lpush("celery", record["message"])
    wait_for(lambda: not client.llen("celery") and not client.keys("unacked:*"), 3, "it is gone")
    assert (record_of(project.redis, result.id), client.zscore(DUE, result.id)) == (record, due)
    client.hset(f"{LEDGER}clock", "offset_ms", 3_600_000)

    wait_for(lambda: client.zscore(DUE, result.id) > due + 3_500_000, 3, "it waits again")
    assert result.get(timeout=15) == "worked"
    (run,) = project.effects.runs(result.id)
    assert -0.1 <= run.started_at - sent_at - 4 <= 2
    wait_until_gone(project.redis, result.id)
