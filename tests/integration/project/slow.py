"""The project's app in a worker that takes its time before a task begins."""

from __future__ import annotations

import os
import time
from typing import Any

from celery.signals import task_received, worker_process_init

__all__ = ["app"]


def take_time(name: str) -> Any:
    """Return a receiver that takes as many seconds as the environment says."""

    def receive(**_: Any) -> None:
        time.sleep(float(os.environ.get(name, "0")))

    return receive


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    worker_process_init.connect(take_time("BOOT_SECONDS"), weak=False)
    task_received.connect(take_time("RECEIVE_SECONDS"), weak=False)
