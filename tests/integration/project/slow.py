"""The project's app in a worker that takes its time before a task begins."""

from __future__ import annotations

import os
import time
from typing import Any

from celery.signals import task_received

__all__ = ["app"]


def take_a_while(**_: Any) -> None:
    """Take as many seconds as the environment says."""
    time.sleep(float(os.environ["RECEIVE_SECONDS"]))


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    task_received.connect(take_a_while, weak=False)
