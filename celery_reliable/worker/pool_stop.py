"""How a pool is stopped: when the worker's shutdown has begun, and to the end."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import Any

from celery.worker import state

from celery_reliable.compat.pool import process_ids_of, stop_by
from celery_reliable.compat.request import running_requests
from celery_reliable.worker.children import is_running_child

__all__ = ["PoolStop"]

#: Threads and greenlets, of which a stop waits for what runs.
_WAITING_POOLS = frozenset({"thread", "gevent"})
#: A process that has not ended so long after a cold stop has begun has not heeded its SIGTERM.
_HEEDED_SECONDS = 4.0


class PoolStop:
    """Stops a pool of threads or greenlets when the worker's shutdown has begun, and not before.

    Celery stops it in the signal handler of a cold shutdown.  There a thread that needs a lock of
    the main thread's (that of the log, or of the pool itself) is waited for until somebody kills
    the worker; and greenlets cannot be waited for, which raises into whatever the main loop does.

    In a cold stop it kills the processes of a pool that have not ended after some seconds.  Celery
    waits for each: one that is frozen would keep the worker, and with it the tasks of all others.
    """

    def __init__(self, pool: Any, name: str) -> None:
        self._pool = pool
        self._stop = pool.stop
        self._may_stop = name not in _WAITING_POOLS
        self._is_asked = False
        if name == "prefork" or not self._may_stop:
            stop_by(pool, self)

    def __call__(self) -> None:
        """Stop the pool, now or when the shutdown begins."""
        if not self._may_stop:
            self._is_asked = True
            return
        if state.should_terminate:
            self.end_what_stays()
        self._stop()

    def begin(self) -> None:
        """Stop the pool if that was asked for, and from now on when it is."""
        self._may_stop = True
        if self._is_asked:
            self._stop()

    def end_what_stays(self) -> None:
        """Have processes killed that do not end by themselves, now that all are told to."""
        # By a thread: the main thread waits for them.
        pids = process_ids_of(self._pool)
        threading.Thread(target=self._kill_later, args=[pids], daemon=True).start()

    def _kill_later(self, pids: list[int]) -> None:
        time.sleep(_HEEDED_SECONDS)
        # Celery has told all others to stop.  It lets these end: they are acknowledged, or about to
        # be.
        spared = {request.worker_pid for request in running_requests()}
        for pid in pids:
            if pid not in spared and is_running_child(pid):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
