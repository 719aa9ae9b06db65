"""A pool's stop, put off until the worker's shutdown has begun."""

from __future__ import annotations

from typing import Any

from celery_reliable.compat.pool import stop_by

__all__ = ["PostponedStop"]

#: Threads and greenlets, of which a stop waits for what runs.
_WAITING_POOLS = frozenset({"thread", "gevent", "eventlet"})


class PostponedStop:
    """Stops a pool when the worker's shutdown has begun, and not before.

    Celery stops it in the signal handler of a cold shutdown.  There a thread that needs a lock of
    the main thread's (that of the log, or of the pool itself) is waited for until somebody kills
    the worker; and greenlets cannot be waited for, which raises into whatever the main loop does.
    """

    def __init__(self, pool: Any, name: str) -> None:
        self._stop = pool.stop
        self._may_stop = name not in _WAITING_POOLS
        self._is_asked = False
        if not self._may_stop:
            stop_by(pool, self)

    def __call__(self) -> None:
        """Stop the pool, now or when the shutdown begins."""
        self._is_asked = True
        if self._may_stop:
            self._stop()

    def begin(self) -> None:
        """Stop the pool if that was asked for, and from now on when it is."""
        self._may_stop = True
        if self._is_asked:
            self._stop()
