"""Sees which workers are declared dead while they live, by what stands in the ledger."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass

import redis

from proof.leftovers import LEDGER

__all__ = ["Death", "Deaths"]

_POLL_SECONDS = 0.15
_WORKERS = f"{LEDGER}workers"
_META = f"{LEDGER}meta"
_WORKER = f"{LEDGER}worker:".encode()


@dataclass(frozen=True)
class Death:
    """A worker that was declared dead while its process was there.

    It is known that it was not at `at`, and that it was at `by`: seconds of the log's clock.
    """

    worker: str
    at: float
    by: float


class Deaths:
    """Looks at all leases again and again, in a thread of its own.

    *now* is the log's clock, *master* the ledger's server, *process* the pid of the worker of a
    name if it is running, else None.  All are called in that thread.
    """

    def __init__(
        self,
        now: Callable[[], float],
        master: Callable[[], redis.Redis],
        process: Callable[[str], int | None],
    ) -> None:
        self._now, self._master, self._process = now, master, process
        self._found: list[Death] = []
        #: When each lease was last seen, and whose process it is.
        self._alive: dict[bytes, tuple[float, int | None]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    @property
    def found(self) -> list[Death]:
        """All by now."""
        return list(self._found)

    def _watch(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            try:
                self._look()
            except (AssertionError, redis.RedisError, OSError):
                # The server is away: what was seen last counts.
                continue

    def _look(self) -> None:
        at, client = self._now(), self._master()
        try:
            ids: list[bytes] = client.zrange(_WORKERS, 0, -1)  # type: ignore[assignment]
            alive = {one for one in ids if client.hget(_WORKER + one, "state") == b"alive"}
            # Who has stopped by itself is none of these.
            deaths = json.loads(client.hget(_META, "deaths") or b"[]")
        finally:
            client.close()
        by = self._now()
        for lease in alive:
            _, pid = self._alive.get(lease, (at, self._process(_name(lease))))
            self._alive[lease] = (at, pid)
        dead = {str(death["worker"]).encode() for death in deaths}
        for lease in self._alive.keys() - alive:
            seen, pid = self._alive.pop(lease)
            name = _name(lease)
            if lease in dead and pid is not None and self._process(name) == pid:
                self._found.append(Death(name, seen, by))


def _name(lease: bytes) -> str:
    return lease.decode().partition("@")[0]
