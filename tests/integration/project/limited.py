"""Tasks whose rate is limited."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from tests.integration.project.tasks import tasks_of

__all__ = ["add_tasks"]


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    task = partial(tasks_of(to), ignore_result=True)

    def begun(key: str) -> None:
        seconds, micros = to.effects.client.time()
        to.effects.client.rpush(key, seconds * 1_000_000 + micros)

    @task(rate=os.environ.get("RATE", "20/s"))
    def limited(self: Any) -> None:
        """Say when it began."""
        begun("begun")

    @task(rate="2/s per object", object_id="name", on_conflict="wait")
    def limited_each(self: Any, name: str) -> None:
        """Say when it began, for its object."""
        begun(f"begun {name}")

    @task()
    def unlimited(self: Any, sent_at: float) -> None:
        """Say how long it was on its way."""
        seconds, micros = to.effects.client.time()
        to.effects.client.rpush("on its way", seconds + micros / 1e6 - sent_at)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
