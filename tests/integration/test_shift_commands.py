"""Limits that are set by remote command, in the pool whose processes take their own messages."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest
from billiard.exceptions import TimeLimitExceeded

from tests.integration.conftest import Project
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="elsewhere than in the ledger nobody has a shift",
    ),
]


@pytest.fixture
def pooled(project: Project) -> Project:
    """The project, whose workers have this pool."""
    return with_shifts(project)


def test_a_rate_limit_that_is_set_while_it_runs_holds_back_the_next_tasks(pooled: Project) -> None:
    start(pooled)
    _, gate, _ = in_shift(pooled)

    answers = pooled.app.control.rate_limit("project.work", "2/s", reply=True, limit=1, timeout=10)

    assert len(answers) == 1
    results = [pooled.send("work", 0) for _ in range(5)]
    pooled.effects.open_gate(gate)
    wait_for(lambda: all(pooled.effects.finished(one.id) for one in results), 30, "all have run")
    starts = sorted(pooled.effects.starts(one.id)[0] for one in results)
    # The bucket has one token at first, and may count a moment differently than the server.
    assert all(later - one > 0.3 for one, later in list(pairwise(starts))[1:])


def test_a_time_limit_that_is_set_while_it_runs_is_for_the_next_task(pooled: Project) -> None:
    start(pooled)
    before, gate, _ = in_shift(pooled)

    answers = pooled.app.control.time_limit("project.gate", hard=1, reply=True, limit=1, timeout=10)

    assert len(answers) == 1
    limited = pooled.send("gate", "shut")
    behind = pooled.send("work", 0)
    pooled.effects.open_gate(gate)
    with pytest.raises(TimeLimitExceeded):
        limited.get(timeout=30)
    assert before.get(timeout=20) == gate
    assert behind.get(timeout=20) == "worked"
