"""Attempts are counted for one task id.

To compare attempts in a table that sees many tasks for one row, keep the task's id in the row.
"""

from __future__ import annotations

from tests.integration.conftest import Project
from tests.support.promises import promise


@promise("attempts-of-one-id")
def test_another_task_about_the_same_object_begins_with_attempt_one(shared: Project) -> None:
    """The first task was at its second attempt."""
    first = shared.send("unique", "row 7", ["kill", "finish"])
    assert first.get(timeout=20) == "run 2"

    second = shared.send("once_fail", "row 7")

    assert second.get(timeout=20) == "run 1"
    # A table that kept 2 for this row would refuse what the second writes.
    assert [run.attempt for run in shared.effects.runs(first.id)] == [1, 2]
    assert [run.attempt for run in shared.effects.runs(second.id)] == [1]
