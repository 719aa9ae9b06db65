"""Never two at once.

Two attempts of one task never run at the same time on workers of which none was declared dead.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import SOON, Project
from tests.integration.figures import leases, passes_finish, wait_until_gone, wait_until_settled
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for


@promise("never-two")
def test_one_id_is_one_task_while_it_lives_and_the_same_message_twice_runs_once(
    project: Project,
) -> None:
    """It is published while it waits and while it runs; of another somebody copies the message."""
    client = project.redis.client()
    first, again = (project.send("gate", "gate", task_id="the-id") for _ in range(2))
    assert first.id == again.id == "the-id"
    assert client.llen("celery") == 1
    copied = project.send("work", 0.2)
    copy = client.lindex("celery", 0)
    for _ in range(4):
        client.lpush("celery", copy)
    project.start_workers("one", "two")
    project.effects.run_of("the-id")
    assert copied.get(timeout=15) == "worked"
    wait_for(lambda: client.llen("celery") == 0, 10, "the copies are dropped")
    project.send("gate", "gate", task_id="the-id")
    assert client.llen("celery") == 0
    project.effects.open_gate("gate")
    assert again.get(timeout=10) == "gate"
    wait_until_gone(project.redis, "the-id")
    assert project.send("work", 0.01).get(timeout=10) == "worked"
    assert [len(project.effects.runs(one.id)) for one in (first, copied)] == [1, 1]
    wait_until_settled(project.redis, 10)


@promise("never-two")
def test_retries_at_once_run_in_order_and_never_twice(shared: Project) -> None:
    """Ten retries without a countdown, of five tasks at a time."""
    results = [shared.send("flaky", 10, 0, 20) for _ in range(5)]
    for result in results:
        assert result.get(timeout=30) == "run 11"
        # In order, none refused and none doubled.  (A retry may begin while the body that asked for
        # it still unwinds: it was closed by asking.)
        assert [run.attempt for run in shared.effects.runs(result.id)] == list(range(1, 12))
        assert shared.effects.starts(result.id) == sorted(shared.effects.starts(result.id))
    wait_until_settled(shared.redis, 10)


@promise("nothing-lost", "never-two")
def test_an_outage_of_redis_kills_nobody(soon: Project) -> None:
    """Redis is away for twice a lease. No worker is declared dead, and what runs goes on."""
    soon.start_workers("one", "two")
    result = soon.begin("gate", "outage")
    before = leases(soon.redis)
    soon.redis.stop()
    stopped_at = soon.effects.now()
    wait_for(lambda: soon.effects.now() - stopped_at > 8, 30, "twice the lease")
    soon.redis.start()
    passes_finish(soon.redis, 3, 30)
    # A worker that was declared dead would have another id.
    assert leases(soon.redis) == before
    soon.effects.open_gate("outage")
    wait_for(lambda: soon.effects.finished(result.id), 10, "the task ended")
    assert len(soon.effects.runs(result.id)) == 1
    later = soon.send("work", 0.01)
    wait_for(lambda: soon.effects.finished(later.id), 20, "work goes on")
    wait_until_settled(soon.redis, 10)


@pytest.mark.full
@promise("never-two")
def test_a_half_open_network_is_survived(project: Project, proxy: RedisProxy) -> None:
    """Nothing arrives for most of a lease, and no connection is closed."""
    behind = project.with_settings(
        broker_url=proxy.url(),
        reliable=SOON,
        celery={
            "broker_transport_options": {"socket_timeout": 2, "health_check_interval": 1},
        },
    )
    worker = behind.start_worker("one")
    result = project.begin("gate", "gate")
    proxy.stall()
    stalled_at = project.effects.now()
    wait_for(lambda: project.effects.now() - stalled_at > 3, 10, "most of a lease")
    proxy.mend()
    later = project.send("work", 0.01)
    wait_for(lambda: project.effects.finished(later.id), 25, "work goes on")
    project.effects.open_gate("gate")
    wait_for(lambda: project.effects.finished(result.id), 20, "the task ended")
    wait_until_settled(project.redis, 25)
    assert worker.is_running
    assert not project.effects.overlaps()
