"""The project in a worker that notes which of kombu's locks the thread of its heartbeat takes."""

from __future__ import annotations

import os
import threading
from typing import Any

from kombu.utils.objects import cached_property

__all__ = ["BEATING", "TAKEN"]

#: The thread.
BEATING = "celery-reliable-heartbeat"
#: The set of the properties whose locks it took.
TAKEN = "taken by the heartbeat"


def note_what_is_taken(app: Any) -> None:
    """Note it from now on."""
    original = cached_property.__get__

    def noted(self: Any, instance: Any, owner: Any = None) -> Any:
        if threading.current_thread().name == BEATING:
            app.effects.client.sadd(TAKEN, f"{owner.__name__}.{self.attrname}")
        return original(self, instance, owner)

    cached_property.__get__ = noted


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    note_what_is_taken(app)
