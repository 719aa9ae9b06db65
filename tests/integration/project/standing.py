"""The project in a worker whose main loop can be held, as by a signal handler that waits."""

from __future__ import annotations

import signal
import time
from typing import Any

from celery.signals import worker_ready

from tests.integration.project.app import app

__all__ = ["app"]


def _stand(*_: Any) -> None:
    # Until the gate opens that its tasks wait for.
    while not app.effects.client.exists("gate:door"):
        time.sleep(0.1)


def _listen(**_: Any) -> None:
    signal.signal(signal.SIGWINCH, _stand)


worker_ready.connect(_listen, weak=False)
