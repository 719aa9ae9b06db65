"""The project's app, whose main processes write down what they receive."""

from __future__ import annotations

import json
import os
from typing import Any

from celery.signals import task_received

__all__ = ["RECEIVED"]

#: Where that is, in the effects' database.
RECEIVED = "received"

if os.environ.get("READY_KEY"):
    from tests.integration.project.app import app

    def write(sender: Any, request: Any, **_: Any) -> None:
        found = {"id": request.id, "name": request.name, "pid": os.getpid(), "at": sender.hostname}
        app.effects.client.rpush(RECEIVED, json.dumps(found))

    task_received.connect(write, weak=False)
