"""Limited tasks that something has held: they go on by their rate."""

from __future__ import annotations

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.orders import OrderKind
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.integration.project.limited import add_tasks
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

ORDERED = "{reliable:0}:ordered"
PER_SECOND = 5
N_TASKS = 30
#: A moment has lapsed after so long.
LAPSED_SECONDS = 2.5


@pytest.mark.parametrize("hold", ["strike", "death"])
def test_what_was_held_begins_by_its_rate(project: Project, hold: str) -> None:
    add_tasks(project.app)
    orders = reliable_of(project.app).ledger.orders
    client = project.effects.client
    options = {"app": "tests.integration.project.limited", "environ": {"RATE": f"{PER_SECOND}/s"}}
    worker = project.start_worker("one", **options)
    for _ in range(N_TASKS):
        project.send("limited")
    wait_for(lambda: client.llen("begun") >= 2, 20, "the first begin")
    if hold == "strike":
        order = orders.give(
            OrderKind.STRIKE, "project.limited", by="ann", why="the partner is down"
        )
    else:
        worker.kill_group()
    ledger = project.redis.client()
    held_until = project.effects.now() + N_TASKS / PER_SECOND + LAPSED_SECONDS
    wait_for(lambda: project.effects.now() > held_until, 60, "their moments lapse")
    if hold == "strike":
        wait_for(
            lambda: ledger.zcard(ORDERED) + client.llen("begun") == N_TASKS,
            30,
            "all wait for the order",
        )
    n_before = client.llen("begun")
    assert n_before <= N_TASKS - 6

    if hold == "strike":
        orders.resume(order.id, by="ann", limit=1000)
    else:
        project.start_worker("two", **options)

    wait_until_settled(project.redis, 60)
    # What ran as its worker was killed has begun twice.
    assert client.llen("begun") - N_TASKS in ((0, 1) if hold == "death" else (0,))
    begun = sorted(int(one) for one in client.lrange("begun", n_before, -1))
    # One may be late by as much as another is not.
    too_early = [n for n, one in enumerate(begun) if (one - begun[0]) * PER_SECOND / 1e6 <= n - 2]
    assert too_early == []
    ledger.close()
