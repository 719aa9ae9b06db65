"""Three things that Celery's pools do at the wrong moment, done at the right one."""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["PostponedStop", "hear_the_dead", "wait_aside"]

#: Threads and greenlets, of which a stop waits for what runs.
_WAITING_POOLS = frozenset({"thread", "gevent", "eventlet"})


def hear_the_dead(pool: Any) -> None:
    """Let a started pool of processes hear what one said before it died, before its task is given
    to another.  Other pools are left alone.

    A process says that it begins a task, and then begins.  Billiard reads what dead processes said
    when it clears up after them; but when one dies while it does so for another, it takes the task
    for one that was never begun, and hands it to the next process: it would run again with no loss
    counted.
    """
    processes: Any = getattr(pool, "_pool", None)
    if not hasattr(processes, "on_partial_read"):
        return
    give_to_another = processes.on_partial_read

    def on_partial_read(job: Any, process: Any) -> None:
        processes.process_flush_queues(process)
        give_to_another(job, process)

    processes.on_partial_read = on_partial_read


def wait_aside(pool: Any) -> None:
    """Let what comes to a started pool of gevent's greenlets, while all of them are busy, wait
    beside the main loop, as in a pool of threads.  Other pools are left alone.

    Celery lets the main loop wait, which then neither reads from the broker nor acknowledges
    anything.
    """
    greenlets: Any = getattr(pool, "_pool", None)
    if not hasattr(greenlets, "greenlet_class"):
        return
    waiting: deque[Any] = deque()

    def begin_in_turn() -> None:
        while waiting:
            # Waits for a free one; the next to come sees that somebody does.
            greenlets.start(waiting[0])
            waiting.popleft()

    def put(target: Any, *args: Any, **kwargs: Any) -> Any:
        greenlet = greenlets.greenlet_class(target, *args, **kwargs)
        waiting.append(greenlet)
        if len(waiting) == 1:
            pool.spawn_n(begin_in_turn)
        return greenlet

    pool._quick_put = put


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
            pool.stop = self

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
