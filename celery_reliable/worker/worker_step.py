"""The worker's own step: its identity and lease, its threads, and how it leaves."""

from __future__ import annotations

import atexit
import os
import time
from typing import Any

from celery import bootsteps
from celery.signals import worker_shutdown, worker_shutting_down
from celery.worker import state

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.broker import WorkerUnacked
from celery_reliable.compat.consumer import before_soft_shutdown
from celery_reliable.compat.notes import note
from celery_reliable.compat.pool import keep_begun_jobs
from celery_reliable.context import WorkerProcess, set_current_worker
from celery_reliable.doctor import setup_to_tell
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import FORMAT
from celery_reliable.log import logger
from celery_reliable.pool import kind_of
from celery_reliable.version import __version__
from celery_reliable.worker.arrivals import Arrivals
from celery_reliable.worker.health import Doing, Health
from celery_reliable.worker.heartbeat import Heartbeat
from celery_reliable.worker.order_keeping import LOOKING_POOLS, OrderKeeping
from celery_reliable.worker.passes import Passes
from celery_reliable.worker.running_claims import PoolStop, RunningClaims
from celery_reliable.worker.shifts import Shifts, shifts_of
from celery_reliable.worker.startup import (
    check_start,
    consume_apart,
    consume_own_queue,
    finish_when_embedded,
)
from celery_reliable.worker.unbegun import Unbegun
from celery_reliable.worker.unprocessable import Openings, Unprocessable
from celery_reliable.worker.waker import Waker

__all__ = ["WorkerStep"]


class WorkerStep(bootsteps.StartStopStep):
    """Takes the lease at the start, and gives it back when the pool is joined: until then tasks
    run.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, w: Any, **kwargs: Any) -> None:
        super().__init__(w, **kwargs)
        self.app = w.app
        self.reliable = reliable_of(w.app)
        self.pool_name = ""
        #: When the main loop turned last, by the monotonic clock.
        self.turned_at = time.monotonic()
        self.seen = Doing(self)
        self.is_connecting, self.is_leaving = True, False
        try:
            if self.reliable.is_unprotected:
                self.reliable.tell_unprotected()
                self.enabled = False
                return
            self.process = WorkerProcess(w.hostname)
            # Probes see it while it waits for its servers.
            self.health = Health(self)
            self.health.begin()
            try:
                check_start(w, self.reliable)
            except BaseException:
                self.health.end()
                raise
        except ReliableError as exc:
            # Celery would print a traceback of this; the paragraph says what to change.
            raise SystemExit(f"celery_reliable: {exc}") from None
        self.process.sends_events = bool(w.task_events)
        self._setup = setup_to_tell(w)
        set_current_worker(self.process)
        #: The second undoes what would outlive this worker: user code may go on in its process.
        self.unacked_name, self._undo = consume_apart(self.reliable, self.process)
        self._direct_queue, undo = consume_own_queue(w, self.reliable)
        self._undo += undo
        #: This worker's unacked hash, once it consumes.
        self.unacked: WorkerUnacked | None = None
        self.claims = RunningClaims(w, self)
        self.orders = OrderKeeping(w, self)
        self.openings = Openings(self.reliable, self.process)
        self.unprocessable = Unprocessable(self.reliable, self.openings)
        # The consumer's step finds it there.
        note(w, "step", self)
        #: Made with the first consumer; None where nothing is given back.
        self.unbegun: Unbegun | None = None
        self.heartbeat: Heartbeat | None = None
        self.passes = Passes(self)
        self.waker: Waker | None = None
        #: None where no process of the pool takes messages by itself.
        self.shifts: Shifts | None = None
        #: The messages that the consumer waits for; None where it pops them.
        self.arrivals: Arrivals | None = None
        self._is_finished = False

    def create(self, w: Any) -> None:
        """Look at plain tasks before they reach the pool, which is made by now, and at its stop."""
        self.orders.install()
        self.pool_name = kind_of(w.pool)
        self._pool_stop = PoolStop(w.pool, self.pool_name)

    def start(self, w: Any) -> None:
        """Register, and start to renew."""
        keep_begun_jobs(w.pool)
        self.shifts = shifts_of(w, self)
        self.heartbeat = Heartbeat(self)
        self.heartbeat.register()
        self.heartbeat.start()
        self.passes.start()
        self.waker = Waker(self.reliable, self.process.id, self.passes.send)
        self.waker.start()
        worker_shutting_down.connect(self._leave, sender=w.hostname, weak=False)
        worker_shutdown.connect(self.finish, sender=w, weak=False)
        atexit.register(self.finish)
        before_soft_shutdown(w, self._leave)
        finish_when_embedded(w, self.process, self.finish)

    def close(self, w: Any) -> None:
        """Leave; this is the first that is called at a shutdown."""
        self._leave()
        consumer = getattr(getattr(w, "consumer", None), "task_consumer", None)
        if self.unacked_name and consumer is not None:
            # Nobody would read what comes until the worker's tasks have ended.
            consumer.channel.end_arrivals()
        self._pool_stop.begin()

    def terminate(self, w: Any) -> None:
        """Have processes killed that do not end; `close` was called."""
        self._pool_stop.end_what_stays()

    def _leave(self, **kwargs: Any) -> None:
        self.is_leaving = True
        if self.shifts is not None:
            self.shifts.leave()
        if self.unacked is not None:
            self.unacked.is_leaving = True

    def finish(self, **kwargs: Any) -> None:
        """Give back what is claimed, stop renewing and deregister.  Once; not in children."""
        if self._is_finished or os.getpid() != self.process.pid:
            return
        self._is_finished = True
        atexit.unregister(self.finish)
        while self._undo:
            self._undo.pop()()
        if self.waker is not None:
            self.waker.ask_to_stop()
        self.passes.ask_to_stop()
        try:
            try:
                self.claims.release()
            finally:
                # Before it is forgotten: a beat that came later would register it anew.
                if self.heartbeat is not None:
                    self.heartbeat.stop()
            self._deregister()
        except Exception as exc:
            # The sweeper finds the worker dead.  That it cannot say so must not keep it from
            # ending.
            logger.warning("worker_not_deregistered worker=%s error=%s", self.process.id, exc)
        finally:
            self.health.end()

    def _deregister(self) -> None:
        unacked, held = self.unacked, 0
        if unacked is not None:
            unacked.catch_up()
            held = len(unacked)
        if not self.reliable.ledger.workers.deregister(self.process.id, in_unacked=held):
            logger.warning("worker_left_something worker=%s messages=%s", self.process.id, held)
            return
        if unacked is not None:
            unacked.strike_off(self.reliable.config.namespace)
        events.worker_left(app=self.app, worker=self.process.id)

    # -- what the threads ask

    @property
    def is_stalled(self) -> bool:
        """Whether the main loop has not turned for STALL_SECONDS without an excuse."""
        return self.stands_seconds > self.reliable.config.stall_seconds

    @property
    def stands_seconds(self) -> float:
        """For how long the main loop has not turned without an excuse."""
        # While Celery connects it waits in the main loop, longer with every attempt.
        if (
            self.is_leaving
            or self.is_connecting
            or (self.pool_name == "solo" and state.active_requests)
        ):
            return 0.0
        return time.monotonic() - self.turned_at

    def facts(self) -> dict[str, Any]:
        """What others may want to know of this worker."""
        name, broker = self.reliable.project
        return {
            "version": __version__,
            "format": FORMAT,
            "app": name,
            "broker": broker,
            "nodename": self.process.nodename,
            "pid": self.process.pid,
            "pool": self.pool_name,
            "unacked": self.unacked_name,
            "direct": self._direct_queue,
            "looks_again": self.pool_name in LOOKING_POOLS,
            **self._setup,
        }
