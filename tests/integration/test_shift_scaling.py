"""A pool that grows and shrinks while its processes take their own messages."""

from __future__ import annotations

import os

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import assert_each_ran_once, wait_until_settled
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="elsewhere than in the ledger nobody has a shift",
    ),
]

#: For so long Celery keeps a process that is not needed.
SOON_TOO_MANY = {"AUTOSCALE_KEEPALIVE": "3"}


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project)


def test_a_pool_grows_while_messages_wait_and_shrinks_to_what_runs(pooled: Project) -> None:
    one = start(pooled, options=("--autoscale", "3,1"), environ=SOON_TOO_MANY)
    assert len(one.children()) == 1
    held, gate, pid = in_shift(pooled)
    others = [pooled.send("gate", "others") for _ in range(2)]
    for other in others:
        pooled.effects.run_of(other.id)
    assert len(one.children()) == 3
    # There are no more than that.
    waiting = pooled.send("gate", "others")
    wait_for(lambda: pooled.redis.client().llen("celery") == 1, 10, "it waits in its queue")
    pooled.effects.open_gate("others")
    for other in [*others, waiting]:
        assert other.get(timeout=20) == "others"
    # The one that is left is that whose task runs.
    wait_for(lambda: one.children() == [pid], 30, "the others are gone")
    assert not pooled.effects.finished(held.id)
    pooled.effects.open_gate(gate)
    assert held.get(timeout=20) == gate
    wait_until_settled(pooled.redis, 10)
    assert_each_ran_once(pooled.effects, [held.id, waiting.id, *(one.id for one in others)])
    assert {run.attempt for run in pooled.effects.runs()} == {1}
