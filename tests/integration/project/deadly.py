"""The project's app with tasks that kill their whole worker, and those that run beside them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery_reliable import ReliableTask
from tests.integration.project.tasks import TICK_SECONDS

__all__ = ["TOGETHER_SECONDS", "add_tasks"]

#: How long the first runs wait for each other.
TOGETHER_SECONDS = 60.0


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    def task(body: Any) -> Any:
        return to.task(
            body, bind=True, base=ReliableTask, shared=False, name=f"project.{body.__name__}"
        )

    def wait_for_others(run: Any, count: int) -> None:
        until = time.monotonic() + TOGETHER_SECONDS
        while len(to.effects.runs()) < count and time.monotonic() < until:
            time.sleep(TICK_SECONDS)
            run.tick()

    @task
    def deadly(self: Any, beside: int) -> None:
        """Kill the whole worker in every run; in the first when so many others run with it."""
        run = to.effects.start(self)
        if run.number == 1:
            wait_for_others(run, beside + 1)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    @task
    def bystander(self: Any, seconds: float) -> str:
        """Run until the worker is killed; then take so long."""
        with to.effects.run(self) as run:
            until = time.monotonic() + (TOGETHER_SECONDS if run.number == 1 else seconds)
            while time.monotonic() < until:
                time.sleep(TICK_SECONDS)
                run.tick()
        return "unharmed"


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
