"""Masters that are demoted: failovers under busy workers, planned ones and others."""

from __future__ import annotations

import os

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.sentinel import Sentinel
from tests.support.waiting import stored, wait_for

pytestmark = pytest.mark.full


@promise("one-server")
@pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)
def test_processes_take_their_own_messages_at_each_master(
    project: Project, replica: RedisServer, sentinel: Sentinel
) -> None:
    behind = project.with_settings(broker_url=sentinel.url(), result_url=sentinel.url(db=1))
    options = ("broker_transport_options", "result_backend_transport_options")
    pooled = with_shifts(behind, dict.fromkeys(options, sentinel.options))
    worker = start(pooled)
    first, gate, pid = in_shift(pooled)
    assert worker.children() == [pid]
    project.redis.kill()
    wait_for(lambda: sentinel.has_promoted(replica), 30, "the replica is promoted")
    pooled.effects.open_gate(gate)
    assert stored(first, 40) == gate

    pooled.redis = replica
    later, gate, again = in_shift(pooled, "new")
    pooled.effects.open_gate(gate)
    assert stored(later, 20) == gate
    assert worker.children() == [again]
    assert {run.attempt for run in pooled.effects.runs()} == {1}
    assert_each_ran_once(pooled.effects, [run.task_id for run in pooled.effects.runs()])
