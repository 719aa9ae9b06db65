"""The claims of one worker: whether somebody runs them, and how they are stopped or given back."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable.attempt import running_requests
from celery_reliable.compat.pool import task_ids_of
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.model import Claim, SweepReport
from celery_reliable.recovery import Losses
from celery_reliable.worker.claims import PATIENCE_SECONDS, is_ending

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "RunningClaims",
]


class RunningClaims:
    """Knows by Celery's requests and the pool's jobs which claims of this worker somebody runs."""

    def __init__(self, w: Any, step: WorkerStep) -> None:
        self._worker = w
        self._step = step
        #: How many there are, as the last beat was told.
        self.n_known = 0

    def runs(self, claim: Claim) -> bool:
        """Whether a request or a job of the pool stands behind a claim."""
        if is_ending(claim.token):
            return True
        if self._step.shifts.running.holding(claim.token) is not None:
            return True
        # Celery keeps `requests` by id: a copy of the message takes the place of what runs.
        for request in [*state.requests.values(), *running_requests()]:
            if getattr(request, "reliable_token", None) == claim.token:
                return True
        # Celery forgets requests when it loses its connection; the pool keeps what was accepted.
        return claim.task_id in task_ids_of(self._worker.pool)

    def has_given_up(self, claim: Claim) -> bool:
        """Whether nobody can have begun by a claim, as the worker did not hear of it."""
        unacked = self._step.unacked
        return unacked is not None and claim.token in unacked.given_up

    def stop(self, claim: Claim) -> bool:
        """Stop a claim that was taken from this worker, and let nothing of it be stored; True when
        nobody runs it any more.

        Only prefork can stop a task.  In other pools it runs to its end, and its successor waits.
        """
        shift = self._step.shifts.running.holding(claim.token)
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

    def give_up(self, claim: Claim) -> None:
        """Release a claim by which nothing begins.  Where the ledger does not answer, it is found
        that nobody runs it.
        """
        reliable = self._step.reliable
        try:
            reliable.ledger.release(
                claim, due_in_ms=reliable.config.sweep_ms, patience_seconds=PATIENCE_SECONDS
            )
        except (LedgerUnavailable, LedgerRefused) as exc:
            logger.warning("claim_not_released id=%s error=%s", claim.task_id, exc)

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
