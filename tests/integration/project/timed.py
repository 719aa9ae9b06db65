"""The project's app with tasks that have an object, and outlast their time, or end slowly."""

from __future__ import annotations

import os
import time
from typing import Any

from celery_reliable import ReliableTask
from tests.integration.project.tasks import Broken, _wait_at_gate

__all__ = ["add_tasks"]


class EndsSlowly(ReliableTask):
    """Its hook comes after Celery has stored the outcome, and needs its object."""

    abstract = True

    def after_return(self, *args: Any) -> None:
        time.sleep(0.5)
        self.app.effects.client.rpush("hooks", self.request.id)


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""
    to.task(
        _stuck,
        bind=True,
        shared=False,
        base=ReliableTask,
        name="project.stuck_for_good",
        object_id="object_id",
        on_conflict="retry",
        time_to_run_seconds=1,
        max_losses=0,
    )
    to.task(
        _ends_slowly,
        bind=True,
        shared=False,
        base=EndsSlowly,
        name="project.ends_slowly",
        object_id="object_id",
        unique="queued",
    )


def _stuck(self: Any, object_id: str) -> int:
    """Run until the test opens the gate of its id; a later attempt ends at once."""
    with self.app.effects.run(self, f"{self.name} {object_id}") as run:
        if run.number == 1:
            _wait_at_gate(self, run, self.request.id)
    return int(run.number)


def _ends_slowly(self: Any, object_id: str, is_failing: bool) -> str:
    with self.app.effects.run(self, object_id):
        if is_failing:
            raise Broken("as told")
    return object_id


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
