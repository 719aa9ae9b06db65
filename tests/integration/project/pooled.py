"""The project's app with tasks that show what a pool can and cannot do."""

from __future__ import annotations

import os
import time
from typing import Any

from tests.integration.project.tasks import tasks_of

__all__ = ["add_tasks"]


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    task = tasks_of(to)

    @task()
    def computing(self: Any, seconds: float) -> str:
        """Compute without a pause: no other greenlet gets a turn."""
        with to.effects.run(self):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                sum(range(1000))
        return "computed"

    @task(time_to_run_seconds=2)
    def overlong(self: Any, first_seconds: float) -> str:
        """Run too long the first time."""
        with to.effects.run(self) as run:
            until = time.monotonic() + (first_seconds if run.number == 1 else 0)
            while time.monotonic() < until:
                time.sleep(0.05)
                run.tick()
        return f"run {run.number}"

    @task(time_to_run_seconds=0.5, max_losses=0)
    def stuck(self: Any) -> None:
        """Take so long that a pass takes it away, and buries it at once."""
        time.sleep(8)

    @task()
    def spin(self: Any, more: int) -> None:
        """Publish the next of a chain, as tasks do that are split up."""
        with to.effects.run(self):
            if more:
                spin.delay(more - 1)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
