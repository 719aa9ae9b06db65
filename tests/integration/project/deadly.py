"""Tasks that kill their whole worker, and those that run beside them."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.integration.project.tasks import TICK_SECONDS, tasks_of

__all__ = ["add_tasks"]

#: How long the first runs wait for each other.
TOGETHER_SECONDS = 60.0


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the tasks of this module."""

    task = tasks_of(to)

    def wait_for_others(run: Any, count: int) -> None:
        until = time.monotonic() + TOGETHER_SECONDS
        while len(to.effects.runs()) < count and time.monotonic() < until:
            time.sleep(TICK_SECONDS)
            run.tick()

    @task()
    def deadly(self: Any, beside: int) -> None:
        """Kill the whole worker in every run; in the first when so many others run with it."""
        run = to.effects.start(self)
        if run.number == 1:
            wait_for_others(run, beside + 1)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    @task()
    def bystander(self: Any, seconds: float) -> str:
        """Run until the worker is killed; then take so long."""
        with to.effects.run(self) as run:
            until = time.monotonic() + (TOGETHER_SECONDS if run.number == 1 else seconds)
            while time.monotonic() < until:
                time.sleep(TICK_SECONDS)
                run.tick()
        return "unharmed"
