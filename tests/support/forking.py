"""Threads that work inside the gate, and processes that are forked beside them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from celery_reliable.native_threads import NativeThread, fork_gate

FORK_SECONDS = 10.0


class Working(NativeThread):
    """Works inside the gate, and holds a lock in each of its steps."""

    def __init__(self, step: Callable[[Working], None]) -> None:
        super().__init__("working")
        self.lock = threading.Lock()
        self.has_begun = threading.Event()
        self._step = step

    def run(self) -> None:
        with fork_gate:
            self._step(self)


def exit_code_of_a_child(body: Callable[[], bool]) -> int:
    """Fork, and return 0 if *body* was true in the child."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if body() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def has_no_holder(lock: threading.Lock) -> bool:
    return lock.acquire(timeout=1)
