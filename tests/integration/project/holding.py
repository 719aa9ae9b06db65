"""The project's app with a task whose result backend answers nobody before a gate is open."""

from __future__ import annotations

import os
import time
from typing import Any

from celery.backends.redis import RedisBackend

from celery_reliable import ReliableTask
from tests.integration.project.tasks import TICK_SECONDS

__all__ = ["add_tasks"]


class Holding(RedisBackend):
    """Celery's own, which waits for the gate."""

    def get_state(self, task_id: str) -> Any:
        while not self.app.effects.is_open("backend"):
            time.sleep(TICK_SECONDS)
        return super().get_state(task_id)


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the task of this module."""

    def held(self: Any) -> None:
        """Do nothing."""

    backend = Holding(app=to, url=to.conf.result_backend)
    to.task(held, bind=True, shared=False, base=ReliableTask, name="project.held", backend=backend)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
