"""Who sends itself back spends a loss.

``Reject(requeue=True)`` has no outcome, and counts as a lost attempt; ``retry()`` does not.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.project.defined import add_tasks
from tests.support.promises import promise

MODULE = "tests.integration.project.defined"


@pytest.fixture(autouse=True)
def _tasks(project: Project) -> None:
    add_tasks(project.app)


@promise("requeue-is-a-loss")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_task_that_rejects_itself_once_ends(pool: str, project: Project) -> None:
    """It runs again, and `delivery_info["redelivered"]` is true then."""
    project.start_worker("one", app=MODULE, pool=pool)

    result = project.send("rejecting")

    assert result.get(timeout=20) == "redelivered"
    assert [run.redelivered for run in project.effects.runs(result.id)] == [False, True]


@promise("requeue-is-a-loss")
def test_every_way_back_says_so_and_no_retry_does(project: Project) -> None:
    """`redelivered` is true after each loss, and false for a first run and a retry."""
    project.start_worker("one", app=MODULE)
    killed = project.send("follow", ["kill", "kill", "finish"])
    retried = project.send("follow", ["retry", "retry", "finish"])
    both = project.send("follow", ["reject", "retry", "kill", "finish"])
    replaced = project.send("replaced", [1, 2, 3])
    again = project.send("failing")

    for result in (killed, retried, both, replaced):
        result.get(timeout=40)

    def said(task_id: str) -> list[bool]:
        return [run.redelivered for run in project.effects.runs(task_id)]

    assert said(killed.id) == [False, True, True]
    assert said(retried.id) == [False, False, False]
    assert said(both.id) == [False, True, False, True]
    assert said(replaced.id) == [False, False]
    assert said(again.id) == [False]
