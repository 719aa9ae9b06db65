"""The project's app in a worker whose main loop calls the pool before the transport in each turn.

The loop keeps its callbacks in a set, so this is an order that it may have in any process.
"""

from __future__ import annotations

import os
from typing import Any

from celery.signals import worker_ready
from kombu.asynchronous import get_event_loop


class PoolFirst(set[Any]):
    """Callbacks, of which those of a pool come first."""

    def __copy__(self) -> list[Any]:
        return sorted(self, key=lambda one: "transport" in one.__module__)


def _order(**_: Any) -> None:
    loop = get_event_loop()
    assert {"transport" in one.__module__ for one in loop.on_tick} == {False, True}
    loop.on_tick = PoolFirst(loop.on_tick)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app as app

    worker_ready.connect(_order)
