"""How a worker is, for probes: whether it lives, and whether it takes work.  Only with
PROBE_DIRECTORY.
"""

from __future__ import annotations

from typing import Protocol

from celery_reliable import clock
from celery_reliable.app import Reliable
from celery_reliable.context import WorkerProcess
from celery_reliable.leases import too_long_seconds
from celery_reliable.recovery import BrokerView
from celery_reliable.worker.doing import Doing
from celery_reliable.worker.signs import Signs
from celery_reliable.worker.unserved import Unserved

__all__ = ["Health"]


class Worker(Protocol):
    """What is asked of a worker."""

    reliable: Reliable
    process: WorkerProcess
    seen: Doing
    is_connecting: bool
    is_leaving: bool

    @property
    def is_stalled(self) -> bool:
        """Whether the main loop has not turned for STALL_SECONDS."""

    @property
    def stands_seconds(self) -> float:
        """For how long the main loop has not turned without an excuse."""


class Health:
    """Begins to say it before the worker waits for its servers, and ends with its lease."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._config = config = worker.reliable.config
        self._signs: Signs | None = None
        self._unserved = Unserved(
            worker.seen,
            too_long_seconds(config.lease_seconds, config.sweep_seconds),
            lambda queue: worker.process.order_against(queue) is not None,
        )

    def begin(self) -> None:
        """Say it from now on, if that is wanted.  Raises ConfigurationError where it cannot."""
        if self._config.probe_directory is not None:
            process = self._worker.process
            self._signs = Signs(
                self._config.probe_directory,
                nodename=process.nodename,
                pid=process.pid,
                lease_seconds=self._config.lease_seconds,
                told=self,
            )
            self._signs.start()

    def end(self) -> None:
        """Say no more: the worker ends."""
        signs, self._signs = self._signs, None
        if signs is not None:
            signs.stop()

    def look(self, broker: BrokerView) -> None:
        """Look whether work waits that the worker does not take.  Raises what the broker raises."""
        if self._signs is not None:
            self._unserved.look(broker)

    def why_not_alive(self) -> str:
        """Why only a new start can help; empty while it lives."""
        return self._stands() if self._worker.is_stalled else ""

    def why_not_ready(self) -> str:
        """Why it takes no task just now; empty when it would."""
        worker, process = self._worker, self._worker.process
        if worker.is_leaving:
            return "ends: it finishes what it runs"
        if worker.is_connecting:
            return "is not connected to its broker"
        if worker.stands_seconds > self._config.lease_seconds:
            return self._stands()
        if not process.has_lease or clock.now() > process.lease_until:
            return "cannot renew its lease: the ledger does not answer"
        if not worker.seen.queues:
            # As an operator has told it, or not yet.
            return "consumes no queue"
        unserved = self._unserved.seconds
        if unserved:
            return (
                f"has a free slot and has begun nothing for {unserved:.0f} s, while work waits in "
                "what it consumes"
            )
        return ""

    def _stands(self) -> str:
        return f"has a main loop that has not turned for {self._worker.stands_seconds:.0f} s"
