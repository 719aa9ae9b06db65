"""Claims that are made as a message is filed, for what its worker begins at once."""

from __future__ import annotations

import os

import pytest

from tests.integration.conftest import Project
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")), reason="where no two steps are one, no claim is early"
    ),
]

SLOW = "tests.integration.project.slow"


def warm_up(project: Project) -> None:
    """Have a task run, so that the server knows all scripts, and the worker idle again."""
    project.send("work", 0).get(timeout=10)
    client = project.redis.client()
    wait_for(lambda: not client.keys("unacked:one*"), 10, "it is acknowledged")
    # What was waited for while it was busy would not be claimed; each wait lasts a second.
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 1, 10, "it waits anew")


def test_what_is_received_slowly_is_nobody_elses_meanwhile(project: Project) -> None:
    # Many looks fit between its claim and the request that stands behind it.
    quick = project.with_settings(reliable={"SWEEP_SECONDS": 0.1})
    quick.start_worker("one", app=SLOW, environ={"RECEIVE_SECONDS": "0.45"})
    warm_up(quick)
    for _ in range(5):
        result = quick.send("work", 0.5)
        assert result.get(timeout=20) == "worked"
        assert [run.attempt for run in project.effects.runs(result.id)] == [1]
