"""The worker's own step: its identity and lease, its threads, and how it leaves."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from billiard import get_start_method
from celery import bootsteps
from celery.backends.redis import RedisBackend
from celery.signals import worker_shutdown, worker_shutting_down
from celery.worker import state

from celery_reliable import events
from celery_reliable.app import Reliable, reliable_of
from celery_reliable.broker import (
    UNACKED_PREFIX,
    Unacked,
    opened_unacked,
    transport_for,
)
from celery_reliable.compat import Part, check
from celery_reliable.compat.controller import before_soft_shutdown
from celery_reliable.compat.kombu import shown_as
from celery_reliable.compat.notes import note
from celery_reliable.compat.pool import flush_before_reassigning, task_ids_of, wait_aside
from celery_reliable.context import WorkerProcess, set_current_worker
from celery_reliable.exceptions import ConfigurationError, ReliableError, raise_for
from celery_reliable.ledger import answers
from celery_reliable.model import Claim
from celery_reliable.worker.early_claims import EarlyClaims
from celery_reliable.worker.heartbeat import Heartbeat
from celery_reliable.worker.openings import Openings
from celery_reliable.worker.own_claim import is_ending
from celery_reliable.worker.passes import Passes
from celery_reliable.worker.plain_tasks import LOOKING_POOLS
from celery_reliable.worker.plain_tasks import install as install_handover
from celery_reliable.worker.pool_stop import PostponedStop
from celery_reliable.worker.rights import missing_rights
from celery_reliable.worker.startup import when_there
from celery_reliable.worker.unprocessable import Unprocessable

__all__ = ["WorkerStep"]

#: Under which name a worker has its part of ours.
_NOTED = "step"


class WorkerStep(bootsteps.StartStopStep):
    """Takes the lease at the start, gives it back at the end."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, w: Any, **kwargs: Any) -> None:
        super().__init__(w, **kwargs)
        self.app = w.app
        self.reliable = reliable_of(w.app)
        try:
            if self.reliable.is_unprotected:
                self.reliable.tell_unprotected()
                self.enabled = False
                return
            _check_start_method(w)
            findings = raise_for(check(_parts(w, self.reliable)))
            findings += when_there(w.app, self.reliable.check)
            findings += missing_rights(self.reliable)
            for finding in raise_for(findings):
                events.finding(
                    check=finding.id,
                    severity=finding.level,
                    message=finding.message,
                    hint=finding.hint,
                )
        except ReliableError as exc:
            # Celery would print a traceback of this; the paragraph says what to change.
            raise SystemExit(f"celery_reliable: {exc}") from None
        self.process = WorkerProcess(w.hostname)
        self.process.sends_events = bool(w.task_events)
        set_current_worker(self.process)
        self.unacked_name = ""
        #: Undoes what this worker has changed that lives longer than it: user code may go on in
        #: its process.
        self._undo: list[Callable[[], Any]] = []
        self._choose_transport()
        self.openings = Openings(self.reliable, self.process)
        self.unprocessable = Unprocessable(self.reliable, self.openings)
        note(w, _NOTED, self)
        self._pool: Any = None
        self._pool_stop: PostponedStop | None = None
        self.pool_name = ""
        self.early_claims: EarlyClaims | None = None
        self.heartbeat: Heartbeat | None = None
        self.passes: Passes | None = None
        self.turned_at = time.monotonic()
        self.is_connecting = True
        self.is_leaving = False
        self._is_finished = False

    def _choose_transport(self) -> None:
        """Consume through our transport, into an unacked hash of our own, while the broker's URL
        stays as it is.
        """
        conf = self.app.conf
        path = transport_for(self.reliable.broker_url.split("://", 1)[0])
        if path is None:
            events.broker_keeps_deliveries(scheme=self.reliable.broker_url.split("://", 1)[0])
            return
        if conf.broker_transport and conf.broker_transport not in (
            path,
            "redis",
            "rediss",
            "sentinel",
        ):
            events.broker_transport_kept(transport=conf.broker_transport)
            return
        self.unacked_name = f"{UNACKED_PREFIX}{self.process.base}"
        before, conf.broker_transport = conf.broker_transport, path
        self._undo += [
            partial(setattr, conf, "broker_transport", before),
            # What Celery shows of a connection begins with its transport.
            shown_as(path, self.reliable.broker_url.split("://", 1)[0]),
        ]

    def create(self, w: Any) -> None:
        """Stand before the pool."""
        install_handover(w, self.process)

    def start(self, w: Any) -> None:
        """Register, and start to renew."""
        self._pool = w.pool
        self.pool_name = type(w.pool).__module__.rpartition(".")[2]
        flush_before_reassigning(w.pool)
        if not self.reliable.is_redis_broker:
            wait_aside(w.pool)
        self._pool_stop = PostponedStop(w.pool, self.pool_name)
        self.heartbeat = Heartbeat(self)
        self.heartbeat.register()
        self.heartbeat.start()
        self.passes = Passes(self)
        self.passes.start()
        worker_shutting_down.connect(self._on_shutting_down, sender=w.hostname, weak=False)
        worker_shutdown.connect(self._on_shutdown, sender=w, weak=False)
        atexit.register(self.finish)
        before_soft_shutdown(w, self._leave)

    def close(self, w: Any) -> None:
        """The first thing that is called at a shutdown."""
        self._leave()
        if self._pool_stop is not None:
            self._pool_stop.begin()

    def stop(self, w: Any) -> None:
        """Leave the lease alone: tasks run until the pool is joined, after this step was
        stopped.
        """
        self._undo_all()

    def terminate(self, w: Any) -> None:
        """Likewise."""
        self._leave()
        self._undo_all()

    def _undo_all(self) -> None:
        while self._undo:
            self._undo.pop()()

    def _on_shutting_down(self, **kwargs: Any) -> None:
        self._leave()

    def _on_shutdown(self, **kwargs: Any) -> None:
        self.finish()

    def _leave(self) -> None:
        self.is_leaving = True
        unacked = self.unacked
        if unacked is not None:
            unacked.is_leaving = True

    @property
    def unacked(self) -> Unacked | None:
        """This worker's unacked hash, once it consumes."""
        return opened_unacked(self.unacked_name)

    def finish(self) -> None:
        """Give back what is claimed, stop renewing and deregister.  Once; not in children."""
        if self._is_finished or os.getpid() != self.process.pid:
            return
        self._is_finished = True
        atexit.unregister(self.finish)
        self._undo_all()
        if self.passes is not None:
            self.passes.stop()
        ledger = self.reliable.ledger
        try:
            self.release_claims()
            # Before it is forgotten: a beat that came later would register it anew.
            if self.heartbeat is not None:
                self.heartbeat.stop()
            unacked = self.unacked
            held = 0
            if unacked is not None:
                unacked.catch_up()
                held = len(unacked)
            if not ledger.workers.deregister(self.process.id, in_unacked=held):
                events.worker_left_something(worker=self.process.id, messages=held)
            elif unacked is not None:
                unacked.strike_off(self.reliable.config.namespace)
        except Exception as exc:
            # The sweeper finds out; a worker that cannot say good-bye must still end.
            events.worker_not_deregistered(worker=self.process.id, error=exc)
        finally:
            if self.heartbeat is not None:
                self.heartbeat.stop()

    def release_claims(self) -> None:
        """Return what children claimed that were stopped with the worker: a deployment costs no
        budget.
        """
        ledger = self.reliable.ledger
        for claim, _ in ledger.workers.claims(self.process.id).values():
            # A thread cannot be stopped: its task runs to its end, and settles by itself.
            if self.pool_name != "prefork" and self.runs(claim):
                continue
            released = ledger.release(
                claim,
                due_in_ms=self.reliable.config.sweep_ms,
                # Its message may have been acknowledged, as it ran for long.
                is_unsent=not self.reliable.is_redis_broker,
            )
            if isinstance(released, answers.Released):
                events.attempt_released(task_id=claim.task_id, attempt=claim.attempt)

    # -- what the threads ask

    @property
    def is_stalled(self) -> bool:
        """Whether the main loop has not turned for STALL_SECONDS without an excuse."""
        # While Celery connects it waits in the main loop, longer with every attempt.
        if (
            self.is_leaving
            or self.is_connecting
            or (self.pool_name == "solo" and state.active_requests)
        ):
            return False
        return time.monotonic() - self.turned_at > self.reliable.config.stall_seconds

    def facts(self) -> dict[str, Any]:
        """What others may want to know of this worker."""
        name, broker = self.reliable.project
        return {
            "app": name,
            "broker": broker,
            "nodename": self.process.base.rpartition("/")[0],
            "pid": self.process.pid,
            "pool": self.pool_name,
            "room": self.unacked_name,
            "looks_again": self.pool_name in LOOKING_POOLS,
        }

    def runs(self, claim: Claim) -> bool:
        """Whether a request or a job of the pool stands behind a claim."""
        early = self.early_claims
        if is_ending(claim.token) or (early is not None and early.is_under_way(claim.token)):
            return True
        # The first is by id: a copy of the message takes the place of what runs.
        for request in [*state.requests.values(), *state.active_requests]:
            if getattr(request, "reliable_token", None) == claim.token:
                return True
        # Celery forgets requests when it loses its connection; the pool keeps what was accepted.
        return claim.task_id in task_ids_of(self._pool)

    def has_given_up(self, claim: Claim) -> bool:
        """Whether nobody can have begun by a claim, as its message could not be filed."""
        return self.early_claims is not None and self.early_claims.is_given_up(claim.token)

    def stop_taken(self, claim: Claim) -> bool:
        """Stop a claim that was taken from this worker, muted; True when nobody runs it any more.

        Only prefork can stop a task.  In other pools it runs to its end, and its successor waits.
        """
        for request in list(state.active_requests):
            if getattr(request, "reliable_token", None) != claim.token:
                continue
            if request.reliable_is_taken:
                break
            request.reliable_is_taken = True
            pid = request.worker_pid
            if pid and pid != os.getpid() and self.pool_name == "prefork":
                events.taken_claim_stopped(task_id=claim.task_id, attempt=claim.attempt, pid=pid)
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    # It had ended.
                    pass
        return not self.runs(claim)


def _parts(w: Any, reliable: Reliable) -> Iterator[Part]:
    """Yield what of the package a worker uses."""
    yield from (Part.PRODUCER, Part.WORKER)
    if w.pool_cls.__module__.endswith(".prefork"):
        yield Part.PREFORK
    if w.pool_cls.__module__.endswith(".gevent"):
        yield Part.GEVENT
    if w.pool_cls.__module__.endswith(".eventlet"):
        yield Part.EVENTLET
    if reliable.is_redis_broker:
        yield Part.REDIS_BROKER
    if reliable.queues_at:
        # What its tasks publish.
        yield Part.REDIS_PRODUCER
    if isinstance(w.app.backend, RedisBackend):
        yield Part.REDIS_RESULTS


def _check_start_method(w: Any) -> None:
    """Raise ConfigurationError where children would not know which worker they belong to."""
    if not w.pool_cls.__module__.endswith(".prefork"):
        return
    method = w.app.conf.get("worker_pool_start_method") or get_start_method()
    if method != "fork":
        raise ConfigurationError(
            f"worker_pool_start_method is {method!r}: the processes of a prefork pool learn from a "
            "fork which worker's lease they run under. Set it to 'fork', or use another pool."
        )
