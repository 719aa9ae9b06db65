"""The project's app with tasks that name the workers which may run them."""

from __future__ import annotations

import os
from typing import Any

from tests.integration.project import tasks

__all__ = ["add_tasks"]


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    def task(name: str, **options: Any) -> Any:
        return tasks.tasks_of(to)(name=f"project.{name}", **options)

    task("on_gpu", only_workers=("gpu-*",))(tasks.gate)

    in_line = {"object_id": "name", "on_conflict": "wait"}
    task("in_line_on_gpu", only_workers=("gpu-*",), **in_line)(tasks.gate)
    task("line_of_all", **in_line)(tasks.gate)
    task("places_on_gpu", only_workers=("gpu-*",), at_most=2, place="queued", **in_line)(tasks.gate)

    @task("retried_at_gate")
    def retried(self: Any, name: str) -> None:
        """Wait for the gate, and retry; then wait for another one."""
        number = self.request.retries
        tasks.gate(self, name if number == 0 else f"{name} {number}")
        if number == 0:
            raise self.retry(countdown=0)

    task("everywhere", only_workers=("*",))(tasks.gate)
    task("rather_on_gpu", prefer_workers=("gpu-*",))(tasks.gate)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
