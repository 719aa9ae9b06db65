"""The project's app in a worker that is hit at the worst moment, when a test says so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from celery_reliable.signals import pass_finished
from tests.support.waiting import wait_for

__all__ = ["KILL_WHILE_LOCKED"]

KILL_WHILE_LOCKED = "moment:kill_while_locked"

#: Less than a fork waits for the thread of the passes.
LOCKED_SECONDS = 1.2


def taken(app: Any, key: str) -> int | None:
    """What a test has put there, once."""
    value = app.effects.client.getdel(key)
    return None if value is None else int(value)


def kill_while_locked(app: Any) -> Callable[..., None]:
    """Return a receiver that kills a process while it has one of the result backend's locks."""

    def receive(**_: Any) -> None:
        pid = taken(app, KILL_WHILE_LOCKED)
        if pid is None:
            return
        classes = type(app.backend).__mro__
        prop: Any = next(vars(one)["client"] for one in classes if "client" in vars(one))
        with prop.lock:
            os.kill(pid, signal.SIGKILL)
            try:
                wait_for(lambda: _is_replaced(pid), LOCKED_SECONDS, "another process")
            except AssertionError:
                return

    return receive


def _is_replaced(pid: int) -> bool:
    with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", encoding="ascii") as children:
        others = {int(one) for one in children.read().split()} - {pid}
    return bool(others)


# In a process of the project, not in the tests' own.
if "READY_KEY" in os.environ:
    from tests.integration.project.app import app

    pass_finished.connect(kill_while_locked(app), weak=False)
