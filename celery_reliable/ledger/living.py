"""The workers that live and consume a queue of their own, for whoever sends a task to one of them.

What is read may have changed by the time that it is used: claims decide, and what was sent to a
worker that is gone is sent to another.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger import rows
from celery_reliable.ledger.records import Records
from celery_reliable.ledger.replies import ms_of, text_of
from celery_reliable.orders import Orders

__all__ = ["LivingWorker", "LivingWorkers"]

#: For so long what was read is believed.
_BELIEVED_SECONDS = 1.0
_FIELDS = (*rows.LEASE_FIELDS, "doing")


@dataclass
class LivingWorker:
    """A worker that lives and can be sent a task.

    Attributes:
        nodename: as Celery has it; two workers may have the same, and then consume the same queue.
        queue: its own.
        slots: how many tasks it runs at once.
        held: how many it runs or has fetched, and how many wait in its queue.
    """

    worker: str
    nodename: str
    queue: str
    slots: int = 1
    held: int = 0

    @property
    def load(self) -> float:
        """How much it has to do before it can begin another task."""
        return self.held / self.slots


class LivingWorkers:
    """Reads them when it is asked, at the most once in a second.  Any thread may ask.

    Args:
        ledger: whose workers.
        app: the name of the app; workers of another one that shares the ledger are left out.
        key_of: the key of the list of a queue in the ledger's own database; None: queues are
            elsewhere, and what waits in them is not counted.
    """

    def __init__(
        self, ledger: Records, app: str, key_of: Callable[[str], str] | None = None
    ) -> None:
        self._ledger = ledger
        self._app = app
        self._key_of = key_of
        self._found: list[LivingWorker] = []
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def close(self) -> None:
        """Forget what was read."""
        self._read_at = float("-inf")

    def now(self, *, patience_seconds: float | None = None) -> list[LivingWorker]:
        """Return them, as they were within the last second.  Raises what the ledger raises."""
        if time.monotonic() - self._read_at >= _BELIEVED_SECONDS:
            found = self.read(patience_seconds=patience_seconds)
            with self._lock:
                self._found, self._read_at = found, time.monotonic()
        return self._found

    def read(self, *, patience_seconds: float | None = None) -> list[LivingWorker]:
        """Return them as they are now."""
        return self._ledger.ask("living workers", self._read, patience_seconds)

    def _read(self, client: Any) -> list[LivingWorker]:
        keys = self._ledger.keys
        names = [
            (name.decode(), until_ms)
            for name, until_ms in client.zrange(keys.workers, 0, -1, withscores=True)
        ]
        if not names:
            return []
        pipe = client.pipeline(transaction=False)
        pipe.hgetall(keys.orders)
        for name, _ in names:
            pipe.hmget(keys.worker(name), _FIELDS)
            pipe.hlen(keys.claims(name))
        pipe.time()
        told, *answers, time = pipe.execute()
        now_ms = ms_of(time)
        orders = Orders.of({text_of(one): text_of(text) for one, text in told.items()}, now_ms)
        found = []
        for (name, until_ms), row, claims in zip(names, answers[::2], answers[1::2], strict=True):
            one = self._living(name, int(until_ms), now_ms, row, int(claims))
            # One that is drained takes nothing.
            if one is not None and orders.of_queue(one.queue, one.nodename, now_ms) is None:
                found.append(one)
        self._count_waiting(client, found)
        return found

    def _living(
        self, name: str, until_ms: int, now_ms: int, row: Sequence[bytes | None], claims: int
    ) -> LivingWorker | None:
        lease = rows.lease(name, until_ms, row[:-1])
        app = lease.project[0]
        if lease.is_dead or until_ms <= now_ms or not lease.direct_queue:
            return None
        if app and self._app and app != self._app:
            return None
        doing = json.loads(row[-1] or "{}")
        if doing.get("leaving"):
            return None
        fetched = doing.get("fetched")
        return LivingWorker(
            name,
            lease.nodename,
            lease.direct_queue,
            slots=max(1, int(doing.get("slots") or 1)),
            held=max(claims, fetched if isinstance(fetched, int) else 0),
        )

    def _count_waiting(self, client: Any, found: list[LivingWorker]) -> None:
        if self._key_of is None or not found:
            return
        pipe = client.pipeline(transaction=False)
        for one in found:
            pipe.llen(self._key_of(one.queue))
        for one, length in zip(found, pipe.execute(), strict=True):
            one.held += int(length)
