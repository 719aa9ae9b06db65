"""How a worker is: for probes, whether it lives and takes work; for operators, what it does."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable import clock
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.leases import too_long_seconds
from celery_reliable.log import logger
from celery_reliable.native_threads import NativeThread
from celery_reliable.recovery import BrokerView
from celery_reliable_probe import SUFFIX, identity_of, is_there, name_of

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "Doing",
    "Health",
]

_EVERY_SECONDS = 1.0
#: What others left, and nobody has touched for so long, is nobody's.  Of a process in another
#: container nothing else can be told.
_LEFT_SECONDS = 3600.0
_STOP_SECONDS = 2.0


def _clear(directory: str) -> None:
    """Remove the files of workers that have ended without doing so."""
    for name in os.listdir(directory):
        if not name.endswith(SUFFIX):
            continue
        path = os.path.join(directory, name)
        with suppress(OSError, ValueError, KeyError, TypeError):
            with open(path, encoding="utf-8") as file:
                identity = json.load(file)["identity"]
            is_of_here = identity["pids"] == identity_of(os.getpid())["pids"]
            is_old = time.time() - os.stat(path).st_mtime > _LEFT_SECONDS
            if is_old or (is_of_here and not is_there(identity)):
                os.unlink(path)


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
        begun = self.begun
        if begun != self._begun:
            self._begun, self._moved_at = begun, time.monotonic()
        # None while a connection is made.
        queues = sorted(queue.name for queue in getattr(c.task_consumer, "queues", ()))
        self._consumer = {
            "queues": queues[:_MOST_QUEUES],
            "slots": int(getattr(c.pool, "num_processes", 0) or 0),
        }

    @property
    def begun(self) -> int:
        """How many tasks have begun here, of every base."""
        return int(state.all_total_count[0])

    @property
    def queues(self) -> list[str]:
        """What is consumed; empty before the first look."""
        return list(self._consumer.get("queues", ()))

    @property
    def is_free(self) -> bool:
        """Whether a slot is free, and nothing that was taken is still to begin."""
        running, slots = len(state.active_requests), self._consumer.get("slots", 0)
        return running + self._n_shifts < slots and len(state.reserved_requests) <= running

    @property
    def _n_shifts(self) -> int:
        # What processes of the pool run by themselves, of which Celery does not know.
        return self._step.shifts.n_unseen if self._step.shifts is not None else 0

    def told(self) -> str:
        """Return it as JSON, with what runs, when the main loop turned last and a task began last
        (as seconds ago), whether its shutdown has begun, so that it neither turns nor takes
        anything, and the version of the orders that it has heard of; empty before the first look.
        """
        if not self._consumer:
            return ""
        step = self._step
        now = time.monotonic()
        begun, running = self.begun, len(state.active_requests) + self._n_shifts
        moved_at = self._moved_at if begun == self._begun else now
        return json.dumps(
            {
                **self._consumer,
                # With `solo` the main loop runs it, and does not look meanwhile.
                "running": running,
                "fetched": max(running, len(state.reserved_requests) + self._n_shifts),
                "begun": begun,
                "turned": round(now - step.turned_at, 1),
                "moved": round(now - moved_at, 1),
                "leaving": step.is_leaving,
                "orders": step.process.orders.version,
                # By this host, to be compared with the server's.
                "clock": round(time.time(), 3),
            }
        )


def waits(broker: BrokerView, queues: Sequence[str]) -> bool:
    """Whether a message waits in one of *queues*."""
    if broker.is_redis:
        return any(step.depth for name in queues for step in broker.steps(name, 0))
    found = broker.declared_all(queues).values()
    return any(one is not None and one[0] for one in found)


#: So often queues are looked at within the time after which it is believed that nobody takes from
#: them.
_LOOKS = 4


class Health(NativeThread):
    """Writes a file once a second, also while the main loop stands or waits for a server; only with
    PROBE_DIRECTORY.  It begins before the worker waits for its servers, and ends with its lease.

    It says, too, whether work waits in what the worker consumes, while the worker is free and
    begins none of it.  The thread of the passes looks for that, by this process's own clock.  A
    worker that is busy, or holds what it has not begun (for an ETA, or a rate limit), is not looked
    at; nor is a queue that an order of an operator holds back.
    """

    def __init__(self, worker: WorkerStep) -> None:
        super().__init__("celery-reliable-signs")
        self._worker, self._config = worker, worker.reliable.config
        self._directory = self._config.probe_directory or ""
        process = worker.process
        self._path = os.path.join(self._directory, name_of(process.nodename, process.pid))
        self._has_failed = False
        self._patience_seconds = too_long_seconds(
            self._config.lease_seconds, self._config.sweep_seconds
        )
        self._looked_at = 0.0
        self._begun = -1
        #: Since when every look has found work; None: the last one has not.
        self._since: float | None = None

    def begin(self) -> None:
        """Say it for the first time, and from now on.  Raises ConfigurationError where it cannot be
        written.
        """
        if not self._directory:
            return
        try:
            os.makedirs(self._directory, exist_ok=True)
            _clear(self._directory)
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

    def look(self, broker: BrokerView) -> None:
        """Look whether work waits that the worker does not take, if it is time for it and the
        worker is free.  Raises what the broker raises.
        """
        seen, now = self._worker.seen, time.monotonic()
        if seen.begun != self._begun or not seen.is_free:
            self._begun, self._since = seen.begun, None
        elif self._directory and now - self._looked_at >= self._patience_seconds / _LOOKS:
            self._looked_at = now
            since, self._since = self._since, None
            against = self._worker.process.order_against
            if waits(broker, [one for one in seen.queues if against(one) is None]):
                self._since = now if since is None else since

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
        since, now = self._since, time.monotonic()
        has_begun = self._begun != worker.seen.begun
        if since is not None and not has_begun and now - since > self._patience_seconds:
            return (
                f"has a free slot and has begun nothing for {now - since:.0f} s, while work waits "
                "in what it consumes"
            )
        return ""

    def _stands(self) -> str:
        return f"has a main loop that has not turned for {self._worker.stands_seconds:.0f} s"
