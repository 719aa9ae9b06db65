"""The project's app with messages that kill the process which decodes or decompresses them."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from kombu import compression, serialization

__all__ = ["BOMB", "add_format"]

#: As a serializer, and as a compression.
BOMB = "bomb"
_TYPE = "application/x-bomb"


def _explode(data: Any) -> Any:
    # In a process of the project, not in the tests' own.
    if "READY_KEY" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return data


def add_format(to: Any) -> None:
    """Let an app of `create_app` send such messages, and take them."""
    serialization.register(BOMB, json.dumps, lambda data: json.loads(_explode(data)), _TYPE)
    compression.register(lambda data: data, _explode, _TYPE, aliases=[BOMB])
    to.conf.accept_content = ["json", BOMB]


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    add_format(app)
