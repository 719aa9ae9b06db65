"""Who sends itself back spends a loss.

``Reject(requeue=True)`` has no outcome, and counts as a lost attempt; ``retry()`` does not.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.support.promises import promise


@promise("requeue-is-a-loss")
def test_a_task_that_rejects_itself_once_ends_in_a_pool_of_threads(project: Project) -> None:
    """It runs again, and `delivery_info["redelivered"]` is true then."""
    project.start_worker("one", pool="threads")

    result = project.send("redelivered")

    assert result.get(timeout=20) == "redelivered"
    assert [run.redelivered for run in project.effects.runs(result.id)] == [False, True]


@promise("requeue-is-a-loss")
def test_every_way_back_says_so_and_no_retry_does(shared: Project) -> None:
    """`redelivered` is true after each loss, and false for a first run and a retry."""
    wanted = {
        shared.send("redelivered"): [False, True],
        shared.send("follow", ["kill", "kill", "finish"]): [False, True, True],
        shared.send("follow", ["retry", "retry", "finish"]): [False, False, False],
        shared.send("follow", ["reject", "retry", "kill", "finish"]): [False, True, False, True],
        shared.send("replaced", [1, 2, 3]): [False, False],
    }
    for result, said in wanted.items():
        result.get(timeout=40)
        assert [run.redelivered for run in shared.effects.runs(result.id)] == said
