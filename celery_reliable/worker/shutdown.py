"""How a worker leaves: what runs ends or is stopped, what has not begun goes back to its queue, and
the lease is given back.

A message that was delivered and not begun is given back by the channel as it closes (`broker.qos`).
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.signals import worker_shutdown, worker_shutting_down
from celery.worker import state

from celery_reliable import events
from celery_reliable.attempt import running_requests
from celery_reliable.compat.consumer import before_soft_shutdown
from celery_reliable.compat.pool import process_ids_of
from celery_reliable.log import logger
from celery_reliable.worker.claims import is_running_child
from celery_reliable.worker.startup import finish_when_embedded

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = ["PoolStop", "Shutdown"]


class Shutdown:
    """That of one worker: warm, cold or soft.

    *undo*: takes back what would outlive the worker, as user code may go on in its process.
    """

    pool_stop: PoolStop

    def __init__(self, step: WorkerStep, undo: list[Callable[[], object]]) -> None:
        self._step = step
        self._undo = undo
        self._is_finished = False

    def expect(self, w: Any) -> None:
        """Hear of it, however it comes."""
        worker_shutting_down.connect(self.leave, sender=w.hostname, weak=False)
        worker_shutdown.connect(self.finish, sender=w, weak=False)
        atexit.register(self.finish)
        before_soft_shutdown(w, self.leave)
        finish_when_embedded(w, self._step.process, self.finish)

    def begin(self, w: Any) -> None:
        """Begin nothing from now on, and let what runs end."""
        self.leave()
        consumer = getattr(getattr(w, "consumer", None), "task_consumer", None)
        if self._step.unacked_name and consumer is not None:
            # Nobody would read what comes until the worker's tasks have ended.
            consumer.channel.stop_waiting()
        self.pool_stop.begin()

    def leave(self, **kwargs: Any) -> None:
        """Note that the worker leaves, and keeps nothing."""
        step = self._step
        step.is_leaving = True
        step.shifts.leave()
        if step.unacked is not None:
            step.unacked.is_leaving = True

    def finish(self, **kwargs: Any) -> None:
        """Give back what is claimed, stop renewing and deregister.  Once; not in children."""
        step = self._step
        if self._is_finished or os.getpid() != step.process.pid:
            return
        self._is_finished = True
        atexit.unregister(self.finish)
        while self._undo:
            self._undo.pop()()
        if step.waker is not None:
            step.waker.ask_to_stop()
        step.passes.ask_to_stop()
        try:
            try:
                step.claims.release()
            finally:
                # Before it is forgotten: a beat that came later would register it anew.
                if step.heartbeat is not None:
                    step.heartbeat.stop()
            self._deregister()
        except Exception as exc:
            # The sweeper finds the worker dead.  That it cannot say so must not keep it from
            # ending.
            logger.warning("worker_not_deregistered worker=%s error=%s", step.process.id, exc)
        finally:
            step.health.end()

    def _deregister(self) -> None:
        step, held = self._step, 0
        unacked, workers = step.unacked, step.reliable.ledger.workers
        if unacked is not None:
            unacked.catch_up()
            held = len(unacked)
        if not workers.deregister(step.process.id, in_unacked=held):
            logger.warning("worker_left_something worker=%s messages=%s", step.process.id, held)
            return
        if unacked is not None:
            unacked.strike_off(step.reliable.config.namespace)
        events.worker_left(app=step.app, worker=step.process.id)


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
        pool.stop = self

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
        threading.Thread(target=self._kill, args=[pids], daemon=True).start()

    def _kill(self, pids: list[int]) -> None:
        time.sleep(_HEEDED_SECONDS)
        # Celery has told all others to stop.  It lets these end: they are acknowledged, or about to
        # be.
        spared = {request.worker_pid for request in running_requests()}
        for pid in pids:
            if pid not in spared and is_running_child(pid):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
