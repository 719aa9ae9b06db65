"""Tasks that wait for a worker by its name, and passes of several sweepers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.message import Envelope, NamedWorkers
from celery_reliable.operations import Desk
from celery_reliable.operations.task_acts import Moves
from celery_reliable.orders import OrderKind
from celery_reliable.recovery import Sweeper
from tests.integration.conftest import Project
from tests.integration.figures import RECORD
from tests.integration.project.named import add_tasks
from tests.support.waiting import wait_for


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_one_sweeper_let_wait_another_sends_when_the_worker_is_back(
    project: Project, is_killed: bool
) -> None:
    """A worker of the same life: it was drained, and is resumed."""
    project = project.with_settings(reliable={"SWEEP_SECONDS": 0.2, "LEASE_SECONDS": 30})
    add_tasks(project.app)
    reliable, client = reliable_of(project.app), project.redis.client()
    facts = {"nodename": "gpu-1@host", "direct": "gpu-1@host.dq2"}
    with closing(reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=1.0)) as ledger:
        ledger.workers.register("gpu-1", lease_ms=60_000, client_id=0, facts=facts)
        with closing(Sweeper(project.app)) as one, closing(Sweeper(project.app)) as other:
            swept(one)
            order = ledger.orders.give(OrderKind.DRAIN, "gpu-1@host", by="me", why="a repair")
            task_id = project.send("on_gpu", "gate").id
            if is_killed:
                # It is killed before it can say whom it has seen.
                other.ledger.passes.end = lambda *_, **__: None  # type: ignore[method-assign]
            swept(other)
            assert state(client, task_id) == "parked"
            assert client.llen(facts["direct"]) == 0
            ledger.orders.resume(order.id, by="me")
            reliable.living.close()

            swept(one)

            assert state(client, task_id) == "queued"
            assert client.llen(facts["direct"]) == 1


@pytest.mark.parametrize("workers", [(), ("gpu-*",)])
def test_a_member_of_a_run_that_is_moved_stays_one(
    project: Project, workers: tuple[str, ...]
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 0.2, "LEASE_SECONDS": 30})
    add_tasks(project.app)
    reliable, client = reliable_of(project.app), project.redis.client()
    queues = [f"gpu-{n}@host.dq2" for n in (1, 2)]
    for queue in queues:
        facts = {"nodename": queue.removesuffix(".dq2"), "direct": queue}
        reliable.ledger.workers.register(queue, lease_ms=60_000, client_id=0, facts=facts)
    group = project.app.tasks["project.on_gpu"].run_on(2, args=("gate",))

    with Desk(project.app) as desk, closing(Sweeper(project.app)) as sweeper:
        for one in group.results:
            assert Moves(project.app, desk.ledger).move([one.id], workers, by="me").done == 1
        swept(sweeper)

    # What was sent before is stale; each is still for a worker of its own.
    assert not client.llen("celery")
    sent = {one: stamped(client, one.id) for one in group.results}
    assert sorted(sent.values()) == [queue.removesuffix(".dq2") for queue in queues]


def stamped(client: Any, task_id: str) -> str:
    """The worker that the stored message of a member of a run names."""
    named = NamedWorkers.of(Envelope.from_text(client.hget(RECORD + task_id, "message")).headers)
    assert named is not None
    return named.pin


def swept(sweeper: Sweeper) -> None:
    """Run a pass, as soon as one is due."""
    wait_for(lambda: sweeper.run_if_due()[0], 10, "a pass")


def state(client: Any, task_id: str) -> str:
    return str(client.hget(RECORD + task_id, "state").decode())
