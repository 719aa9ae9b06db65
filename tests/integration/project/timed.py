"""Tasks that have an object, and outlast their time, or end slowly."""

from __future__ import annotations

import time
from typing import Any

from celery_reliable import ReliableTask
from tests.integration.project.tasks import Broken, _wait_at_gate, tasks_of

__all__ = ["add_tasks"]


class EndsSlowly(ReliableTask):
    """Its hook comes after Celery has stored the outcome, and needs its object."""

    abstract = True

    def after_return(self, *args: Any) -> None:
        time.sleep(0.5)
        self.app.effects.client.rpush("hooks", self.request.id)


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""
    task = tasks_of(to)

    @task(object_id="object_id", on_conflict="retry", time_to_run_seconds=1, max_losses=0)
    def stuck_for_good(self: Any, object_id: str) -> int:
        """Run until the test opens the gate of its id; a later attempt ends at once."""
        with to.effects.run(self, f"{self.name} {object_id}") as run:
            if run.number == 1:
                _wait_at_gate(self, run, self.request.id)
        return int(run.number)

    @task(base=EndsSlowly, object_id="object_id", unique="queued")
    def ends_slowly(self: Any, object_id: str, is_failing: bool) -> str:
        with to.effects.run(self, object_id):
            if is_failing:
                raise Broken("as told")
        return object_id
