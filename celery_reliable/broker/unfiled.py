"""Messages that were popped from their queues, and are perhaps in no unacked hash."""

from __future__ import annotations

import threading
from typing import Any

from celery_reliable.broker.deliveries import Delivery
from celery_reliable.broker.unacked import Unacked, script

__all__ = ["Unfiled"]


class Unfiled:
    """Those of one worker: they go back to their queues when the broker is there."""

    def __init__(self) -> None:
        self._put_back = script("put_back")
        #: The key of the list that each came from, and what it was to become.
        self._kept: list[tuple[str, Delivery]] = []
        self._lock: Any = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def after_fork(self) -> None:
        """Free the lock that another thread may have held at the fork."""
        self._lock = threading.Lock()

    def add(self, key: str, delivery: Delivery) -> None:
        """Keep a message that came from the list *key*."""
        with self._lock:
            self._kept.append((key, delivery))

    def put_back(self, unacked: Unacked) -> None:
        """Return each to its list that is not in the unacked hash after all, the newest first.

        Raises redis-py's errors; then the others are kept.
        """
        while True:
            with self._lock:
                if not self._kept:
                    return
                key, delivery = self._kept.pop()
            try:
                unacked.run(self._put_back, [unacked.key, key], [delivery.tag, delivery.raw])
            except BaseException:
                self.add(key, delivery)
                raise
