"""The setting by which a worker stops what it runs when its connection is lost, beside processes
that take their own messages.
"""

from __future__ import annotations

import os

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import record_of, wait_until_settled
from tests.integration.shifts import in_shift, start, with_shifts

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="elsewhere than in the ledger nobody has a shift",
    ),
]


def test_what_a_process_has_taken_is_stopped_as_the_connection_is_lost(project: Project) -> None:
    pooled = with_shifts(
        project.with_settings(reliable={"MAX_LOSSES": 0}),
        {"worker_cancel_long_running_tasks_on_connection_loss": True},
    )
    start(pooled)
    result, gate, pid = in_shift(pooled)
    behind = [pooled.send("work", 0) for _ in range(3)]
    client = pooled.redis.client()
    # The main process waits for a message, though its only process is busy, or takes turns.
    for one in client.client_list():
        if one["cmd"] in ("brpop", "subscribe", "psubscribe"):
            client.client_kill_filter(_id=one["id"])
    again = pooled.effects.run_of(result.id, 2, timeout_seconds=30)
    assert again.pid != pid
    assert again.attempt == 2
    # The task is charged nothing.
    assert "losses" not in record_of(pooled.redis, result.id)
    pooled.effects.open_gate(gate)
    assert result.get(timeout=20) == gate
    for other in behind:
        assert other.get(timeout=20) == "worked"
    assert not pooled.effects.overlaps()
    wait_until_settled(pooled.redis, 20)
