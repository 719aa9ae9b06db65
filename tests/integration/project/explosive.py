"""The project's app with messages that kill the process which decodes or decompresses them."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from kombu import compression, serialization

from tests.integration.project import tasks

__all__ = ["BOMB", "add_tasks"]

#: As a serializer, and as a compression.
BOMB = "bomb"
_TYPE = "application/x-bomb"


def _explode(data: Any) -> Any:
    # In a process of the project, not in the tests' own.
    if "READY_KEY" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return data


def add_tasks(to: Any) -> None:
    """Give an app of `create_app` the format, and the task of this module."""
    serialization.register(BOMB, json.dumps, lambda data: json.loads(_explode(data)), _TYPE)
    compression.register(lambda data: data, _explode, _TYPE, aliases=[BOMB])
    to.conf.accept_content = ["json", BOMB]

    @to.task(bind=True, shared=False, name="project.plain_late", acks_late=True)
    def plain_late(self: Any, seconds: float) -> Any:
        """`plain_work` that is acknowledged when it has ended."""
        return tasks.work(self, seconds)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_tasks(app)
