"""Tasks that wait for a worker by its name, and passes of several sweepers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from celery_reliable.app import reliable_of
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


def swept(sweeper: Sweeper) -> None:
    """Run a pass, as soon as one is due."""
    wait_for(lambda: sweeper.run_if_due()[0], 10, "a pass")


def state(client: Any, task_id: str) -> str:
    return str(client.hget(RECORD + task_id, "state").decode())
