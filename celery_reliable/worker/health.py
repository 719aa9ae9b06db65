"""How a worker is: for probes, whether it lives and takes work; for operators, what it does."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable import clock
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.log import logger
from celery_reliable.native_threads import NativeThread
from celery_reliable_probe import identity_of, name_of

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "Doing",
    "Health",
]

_EVERY_SECONDS = 1.0
_STOP_SECONDS = 2.0


#: Who consumes more than these tells of the first.
_MOST_QUEUES = 100


class Doing:
    """What the main loop saw last, told with each beat for operators; any thread may ask.  Nobody
    decides by it.
    """

    def __init__(self, step: WorkerStep) -> None:
        self._step = step
        self._consumer: dict[str, Any] = {}
        self._begun = -1
        self._moved_at = time.monotonic()

    def look(self, c: Any) -> None:
        """Note what Celery's consumer *c* consumes, and whether tasks begin; by the main loop."""
        # Tasks of every base, those that a pool has accepted.
        begun = state.all_total_count[0]
        if begun != self._begun:
            self._begun, self._moved_at = begun, time.monotonic()
        # None while a connection is made.
        queues = sorted(queue.name for queue in getattr(c.task_consumer, "queues", ()))
        self._consumer = {
            "queues": queues[:_MOST_QUEUES],
            "slots": int(getattr(c.pool, "num_processes", 0) or 0),
        }

    @property
    def queues(self) -> list[str]:
        """What is consumed; empty before the first look."""
        return list(self._consumer.get("queues", ()))

    def told(self) -> str:
        """Return it as JSON, with what runs, when the main loop turned last and a task began last
        (as seconds ago), whether its shutdown has begun, so that it neither turns nor takes
        anything, and the version of the orders that it has heard of; empty before the first look.
        """
        if not self._consumer:
            return ""
        step, now = self._step, time.monotonic()
        # Celery does not know of what processes of the pool run by themselves.
        unseen = step.shifts.n_unseen
        running = len(state.active_requests) + unseen
        moved_at = self._moved_at if state.all_total_count[0] == self._begun else now
        return json.dumps(
            {
                **self._consumer,
                # With `solo` the main loop runs it, and does not look meanwhile.
                "running": running,
                "fetched": max(running, len(state.reserved_requests) + unseen),
                "turned": round(now - step.turned_at, 1),
                "moved": round(now - moved_at, 1),
                "leaving": step.is_leaving,
                "orders": step.process.orders.version,
                # By this host, to be compared with the server's.
                "clock": round(time.time(), 3),
            }
        )


class Health(NativeThread):
    """Writes a file once a second, also while the main loop stands or waits for a server; only with
    PROBE_DIRECTORY.  It begins before the worker waits for its servers, and ends with its lease.
    """

    def __init__(self, worker: WorkerStep) -> None:
        super().__init__("celery-reliable-signs")
        self._worker, self._config = worker, worker.reliable.config
        self._directory = self._config.probe_directory or ""
        process = worker.process
        self._path = os.path.join(self._directory, name_of(process.nodename, process.pid))
        self._has_failed = False

    def begin(self) -> None:
        """Say it for the first time, and from now on.  Raises ConfigurationError where it cannot be
        written.
        """
        if not self._directory:
            return
        try:
            os.makedirs(self._directory, exist_ok=True)
            self._write()
        except OSError as exc:
            raise ConfigurationError(
                f"PROBE_DIRECTORY is {self._directory!r}, where this worker cannot write: "
                f"{exc.strerror}. Name a directory of its user's, in memory if there is one."
            ) from exc
        self.start()

    def run(self) -> None:
        """Say it until told to stop."""
        while not self.stop_asked(_EVERY_SECONDS):
            try:
                self._write()
                self._has_failed = False
            except OSError as exc:
                # Probes see that it says nothing.
                if not self._has_failed:
                    logger.warning("sign_not_written path=%s error=%s", self._path, exc)
                self._has_failed = True

    def end(self) -> None:
        """End the thread, and remove the file: there is no such worker any more."""
        self.ask_to_stop()
        self.join(_STOP_SECONDS)
        with suppress(OSError):
            os.unlink(self._path)

    def _write(self) -> None:
        process = self._worker.process
        sign = {
            "nodename": process.nodename,
            "identity": identity_of(process.pid),
            "fresh_seconds": self._config.lease_seconds,
            "not_alive": self.why_not_alive(),
            "not_ready": self.why_not_ready(),
            "written": time.monotonic(),
        }
        # Renamed, so that nobody reads half of it.
        partial = f"{self._path}.partial"
        # Without a file object: its lock might be held at a fork.
        number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(number, json.dumps(sign).encode())
        finally:
            os.close(number)
        os.replace(partial, self._path)

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
        return ""

    def _stands(self) -> str:
        return f"has a main loop that has not turned for {self._worker.stands_seconds:.0f} s"
