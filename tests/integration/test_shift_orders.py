"""An order of an operator that stops what runs, where a process has taken it by itself."""

from __future__ import annotations

import os

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.ledger.answers.workers import Resumed
from celery_reliable.orders import OrderKind
from tests.integration.conftest import SOON, Project
from tests.integration.figures import record_of, wait_until_settled
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="elsewhere than in the ledger nobody has a shift",
    ),
]


@pytest.mark.parametrize("is_away", [False, True])
def test_what_a_process_has_taken_is_stopped_by_an_order_and_charged_nothing(
    project: Project, proxy: RedisProxy, is_away: bool
) -> None:
    pooled = with_shifts(
        project.with_settings(reliable={**SOON, "MAX_LOSSES": 0}),
        # With this the main process hears of each task, and need not ask what its processes have.
        {"worker_cancel_long_running_tasks_on_connection_loss": True},
    )
    start(pooled.with_settings(broker_url=proxy.url()))
    result, gate, _ = in_shift(pooled)
    orders = reliable_of(pooled.app).ledger.orders

    # It cannot look into its unacked hash as the process dies: only the request, which it has
    # stopped, says what is to be released.
    rule = proxy.drop_request("HKEYS", times=None) if is_away else None
    order = orders.give(
        OrderKind.STRIKE, "project.gate", by="ann", why="it is broken", is_stop=True
    )
    wait_for(lambda: record_of(pooled.redis, result.id)["state"] != "running", 30, "it is stopped")
    if rule is not None:
        rule.wait()
        proxy.remove(rule)
    wait_for(
        lambda: record_of(pooled.redis, result.id).get("waiting_for") == f"order {order.id}",
        30,
        "it waits for the end of the order",
    )

    assert "losses" not in record_of(pooled.redis, result.id)
    assert isinstance(orders.resume(order.id, by="ann", limit=1000), Resumed)
    pooled.effects.open_gate(gate)
    assert result.get(timeout=30) == gate
    assert [run.outcome for run in pooled.effects.runs(result.id)] == [None, "finished"]
    wait_until_settled(pooled.redis, 20)
