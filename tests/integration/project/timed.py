"""The project's app with tasks that have an object, and a time to run that the first outlasts."""

from __future__ import annotations

import os
from typing import Any

from celery_reliable import ReliableTask
from tests.integration.project.tasks import _wait_at_gate

__all__ = ["add_tasks"]


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""
    for name, max_losses in (("stuck", 3), ("stuck_for_good", 0)):
        to.task(
            _stuck,
            bind=True,
            shared=False,
            base=ReliableTask,
            name=f"project.{name}",
            object_id="object_id",
            on_conflict="retry",
            time_to_run_seconds=1,
            max_losses=max_losses,
        )


def _stuck(self: Any, object_id: str) -> int:
    """Run until the test opens the gate of its id; a later attempt ends at once."""
    with self.app.effects.run(self, f"{self.name} {object_id}") as run:
        if run.number == 1:
            _wait_at_gate(self, run, self.request.id)
    return int(run.number)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
