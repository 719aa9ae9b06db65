"""The thread of a worker's main process that runs the sweeper's passes, and tells the ledger of
revocations.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from celery_reliable.log import logger
from celery_reliable.model import Cause, Due, SweepReport
from celery_reliable.native_threads import NativeThread, fork_gate
from celery_reliable.recovery import Sweeper, call_off, end_orders

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = ["Passes"]

#: So many revocations are recorded between two looks at what else is due.
_REVOKED_AT_ONCE = 1000


class Passes(NativeThread):
    """Runs the sweeper's passes whenever none finished within SWEEP_SECONDS.

    Recovery that was only a task would wait in the very queues that it repairs.
    """

    # Passes publish, store results and call receivers, as tasks do.
    shares_locks = True

    def __init__(self, host: WorkerStep) -> None:
        super().__init__("celery-reliable-passes")
        self._host = host
        self._sweeper: Sweeper | None = None
        #: What is to be done beside the passes, by any thread's wish.
        self._jobs: deque[Callable[[Sweeper], None]] = deque()
        #: Ids whose revocation the ledger has yet to be told.
        self._revoked: deque[str] = deque()
        #: Claims that nobody runs, and since when that is so, by the monotonic clock.
        self._orphans: dict[tuple[str, int], float] = {}

    def run(self) -> None:
        """Sweep until told to stop."""
        wait, sweep_at = 0.0, time.monotonic()
        while not self.stop_asked(wait):
            # A pass takes locks that children need.
            with fork_gate:
                is_told = self._tell_revoked()
                if time.monotonic() >= sweep_at:
                    sweep_at = time.monotonic() + self._sweep()
                self._work_off()
            wait = max(0.0, sweep_at - time.monotonic())
            if (self._revoked and is_told) or (self._jobs and self._sweeper is not None):
                wait = 0.0
        # Some may have come since the last round.
        with fork_gate:
            while self._revoked and self._tell_revoked():
                pass
        if self._sweeper is not None:
            self._sweeper.close()

    def _tell_revoked(self) -> bool:
        """Tell the ledger of revocations; return whether it was there.  If not, they are kept."""
        n_revoked = min(len(self._revoked), _REVOKED_AT_ONCE)
        left = call_off(self._host.app, [self._revoked.popleft() for _ in range(n_revoked)])
        self._revoked.extendleft(reversed(left))
        return not left

    def _sweep(self) -> float:
        """Run what is due, and return the seconds after which to ask again."""
        wait = self._host.reliable.config.sweep_seconds
        try:
            if self._sweeper is None:
                self._sweeper = Sweeper(self._host.app)
            _, wait = self._sweeper.run_if_due()
            self._look_at_own_claims(self._sweeper)
        except Exception as exc:
            logger.warning("pass_failed error=%s", exc, exc_info=exc)
            if self._sweeper is not None:
                self._sweeper.broker.close()
        return wait

    def _work_off(self) -> None:
        """Do one of them: revocations and passes are not to wait for all."""
        if not self._jobs or self._sweeper is None:
            return
        try:
            self._jobs.popleft()(self._sweeper)
        except Exception as exc:
            # A pass does it.
            logger.warning("pass_failed error=%s", exc, exc_info=exc)

    def send(self, dues: Sequence[Due]) -> None:
        """Have tasks sent whose moment has come; by any thread."""
        self._do(lambda sweeper: sweeper.sending.send_woken(dues))

    def end_orders(self) -> None:
        """Have tasks let go that wait for orders which are over; by any thread."""
        self._do(lambda sweeper: end_orders(self._host.app, sweeper.ledger, SweepReport()))

    def _do(self, job: Callable[[Sweeper], None]) -> None:
        self._jobs.append(job)
        self.wake()

    def call_off(self, task_ids: Iterable[str]) -> None:
        """Have the revocation of tasks recorded: in the main loop many would hold up all others;
        by any thread.
        """
        self._revoked.extend(task_ids)
        self.wake()

    def _look_at_own_claims(self, sweeper: Sweeper) -> None:
        """End the claims of this worker that nobody runs, as no other worker would while it lives.

        What is seen twice, half of SWEEP_SECONDS apart, is lost; it is released when nobody can
        have begun by it.
        """
        if not self._host.claims.n_known:
            self._orphans.clear()
            return
        if self._host.is_leaving:
            # It stops its tasks, and releases their claims by itself.
            return
        now = time.monotonic()
        claims = sweeper.ledger.workers.claims(self._host.process.id)
        gone = {
            (claim.task_id, claim.attempt)
            for claim, pid in claims.values()
            if not (_is_alive(pid) and self._host.claims.runs(claim))
        }
        self._orphans = {key: self._orphans.get(key, now) for key in gone}
        # Two looks may come right after each other: when this thread wakes depends on when the next
        # pass of all workers is due.
        apart = self._host.reliable.config.sweep_seconds / 2
        for task_id, attempt in [k for k, since in self._orphans.items() if now - since >= apart]:
            claim, _ = claims[task_id]
            if self._host.claims.has_given_up(claim):
                sweeper.ledger.release(claim, due_in_ms=0)
            else:
                # The next pass sends the task from its record.
                sweeper.losses.lose(
                    claim,
                    Cause.CHILD_LOST,
                    SweepReport(),
                    has_message=False,
                    detail="its process is gone",
                )
            logger.warning("claim_without_process id=%s attempt=%s", task_id, attempt)


def _is_alive(pid: int) -> bool:
    # Where it is not permitted, another user's process has the number by now.
    with suppress(OSError):
        os.kill(pid, 0)
        return True
    return False
