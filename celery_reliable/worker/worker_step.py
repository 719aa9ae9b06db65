"""The worker's own step: its identity and lease, and its threads."""

from __future__ import annotations

import time
from typing import Any

from celery import bootsteps
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.worker import state

from celery_reliable.app import reliable_of
from celery_reliable.broker import WorkerUnacked
from celery_reliable.compat import note
from celery_reliable.compat.pool import keep_begun_jobs
from celery_reliable.context import WorkerProcess, set_current_worker
from celery_reliable.doctor import setup_to_tell
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import FORMAT
from celery_reliable.pool import TaskPool, kind_of
from celery_reliable.version import __version__
from celery_reliable.worker.health import Doing, Health
from celery_reliable.worker.heartbeat import Heartbeat
from celery_reliable.worker.order_keeping import LOOKING_POOLS, OrderKeeping
from celery_reliable.worker.passes import Passes
from celery_reliable.worker.running_claims import RunningClaims
from celery_reliable.worker.shifts import Shifts
from celery_reliable.worker.shutdown import PoolStop, Shutdown
from celery_reliable.worker.special_tasks import SpecialTasks
from celery_reliable.worker.startup import (
    check_start,
    consume_apart,
    consume_own_queue,
)
from celery_reliable.worker.unprocessable import Unprocessable
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
        if not self.reliable.is_redis_broker:
            # What is delivered begins at once: nothing waits here while another worker is idle.
            w.prefetch_multiplier = 1
        self._setup = setup_to_tell(w)
        set_current_worker(self.process)
        self.unacked_name, undo = consume_apart(self.reliable, self.process)
        self._direct_queue, more = consume_own_queue(w, self.reliable)
        self.shutdown = Shutdown(self, [*undo, *more])
        #: This worker's unacked hash, once it consumes.
        self.unacked: WorkerUnacked | None = None
        self.claims = RunningClaims(w, self)
        self.orders = OrderKeeping(w, self)
        self.special_tasks = SpecialTasks(w, self.process)
        self.unprocessable = Unprocessable(self.reliable, self.process, self.special_tasks)
        if w.pool_cls is PreforkPool:
            w.pool_cls = TaskPool
        # The consumer's step finds it there.
        note(w, "step", self)
        self.heartbeat: Heartbeat | None = None
        self.passes = Passes(self)
        self.waker: Waker | None = None
        self.shifts = Shifts(w, self)

    def create(self, w: Any) -> None:
        """Look at plain tasks before they reach the pool, which is made by now, and at its stop."""
        self.orders.install()
        self.pool_name = kind_of(w.pool)
        self.shutdown.pool_stop = PoolStop(w.pool, self.pool_name)

    def start(self, w: Any) -> None:
        """Register, and start to renew."""
        keep_begun_jobs(w.pool)
        self.shifts.start()
        self.heartbeat = Heartbeat(self)
        self.heartbeat.register()
        self.heartbeat.start()
        self.passes.start()
        self.waker = Waker(self.reliable, self.process.id, self.passes.send)
        self.waker.start()
        self.shutdown.expect(w)

    def close(self, w: Any) -> None:
        """Leave; this is the first that is called at a shutdown."""
        self.shutdown.begin(w)

    def terminate(self, w: Any) -> None:
        """Have processes killed that do not end; `close` was called."""
        self.shutdown.pool_stop.end_what_stays()

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
