"""The claims of one worker: whether somebody runs them, and how they are stopped or given back."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable.attempt import running_requests
from celery_reliable.compat.pool import process_ids_of, task_ids_of
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.model import Claim, SweepReport
from celery_reliable.recovery import Losses
from celery_reliable.worker.claims import is_ending, is_running_child

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "PoolStop",
    "RunningClaims",
]


class RunningClaims:
    """Knows by Celery's requests and the pool's jobs which claims of this worker somebody runs."""

    def __init__(self, w: Any, step: WorkerStep) -> None:
        self._worker = w
        self._step = step

    def runs(self, claim: Claim) -> bool:
        """Whether a request or a job of the pool stands behind a claim."""
        if is_ending(claim.token):
            return True
        arrivals, shifts = self._step.arrivals, self._step.shifts
        if arrivals is not None and arrivals.is_under_way(claim.token):
            return True
        if shifts is not None and shifts.running.holding(claim.token) is not None:
            return True
        # Celery keeps `requests` by id: a copy of the message takes the place of what runs.
        for request in [*state.requests.values(), *running_requests()]:
            if getattr(request, "reliable_token", None) == claim.token:
                return True
        # Celery forgets requests when it loses its connection; the pool keeps what was accepted.
        return claim.task_id in task_ids_of(self._worker.pool)

    def has_given_up(self, claim: Claim) -> bool:
        """Whether nobody can have begun by a claim, as its message could not be filed."""
        arrivals = self._step.arrivals
        return arrivals is not None and arrivals.is_given_up(claim.token)

    def stop(self, claim: Claim) -> bool:
        """Stop a claim that was taken from this worker, and let nothing of it be stored; True when
        nobody runs it any more.

        Only prefork can stop a task.  In other pools it runs to its end, and its successor waits.
        """
        shifts = self._step.shifts
        shift = shifts.running.holding(claim.token) if shifts is not None else None
        if shift is not None:
            _kill(shift.pid, claim)
            return not self.runs(claim)
        for request in running_requests():
            if getattr(request, "reliable_token", None) != claim.token:
                continue
            if request.reliable_is_taken:
                break
            request.reliable_is_taken = True
            pid = request.worker_pid
            if pid != os.getpid() and self._step.pool_name == "prefork":
                _kill(pid, claim)
        return not self.runs(claim)

    def release(self) -> None:
        """Give back what children claimed that were stopped with the worker: that costs the tasks
        no loss.  An attempt whose outcome is stored ends with that.  Raises LedgerUnavailable and
        LedgerRefused.
        """
        step, ledger = self._step, self._step.reliable.ledger
        losses = Losses(step.app, ledger)
        for claim, _ in ledger.workers.claims(step.process.id).values():
            # A thread cannot be stopped: its task runs to its end, and settles by itself.
            if step.pool_name != "prefork" and self.runs(claim):
                continue
            if losses.has_ended_as_stored(claim, SweepReport()):
                continue
            released = ledger.release(
                claim,
                due_in_ms=step.reliable.config.sweep_ms,
                # Its message may have been acknowledged, as it ran for long.
                is_unsent=not step.reliable.is_redis_broker,
            )
            if isinstance(released, answers.Queued):
                logger.info("attempt_released id=%s attempt=%s", claim.task_id, claim.attempt)


def _kill(pid: int | None, claim: Claim) -> None:
    """Kill the process that runs a claim which was taken from this worker, if one has begun."""
    if pid:
        logger.warning(
            "taken_claim_stopped id=%s attempt=%s pid=%s", claim.task_id, claim.attempt, pid
        )
        # It may have ended.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


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
