"""Whether work waits in what a worker consumes, while the worker is free and begins none of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from celery_reliable.recovery import BrokerView
from celery_reliable.worker.doing import Doing

__all__ = ["Unserved"]

#: So often within the time after which it is believed.
_LOOKS = 4


class Unserved:
    """Looks from time to time, by one thread; any other may ask.

    All by this process's own clock.  A worker that is busy, or holds what it has not begun (for an
    ETA, or a rate limit), is not looked at; nor is a queue that an order of an operator holds back.
    """

    def __init__(
        self, seen: Doing, patience_seconds: float, is_held_back: Callable[[str], bool]
    ) -> None:
        self._seen = seen
        self._patience_seconds = patience_seconds
        self._is_held_back = is_held_back
        self._looked_at = 0.0
        self._begun = -1
        #: Since when every look has found work; None: the last one has not.
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """For how long, if that is too long; else 0."""
        since = self._since
        if since is None or self._begun != self._seen.begun:
            return 0.0
        seconds = time.monotonic() - since
        return seconds if seconds > self._patience_seconds else 0.0

    def look(self, broker: BrokerView) -> None:
        """Look at the queues, if it is time for it and the worker is free.  Raises what the broker
        raises.
        """
        begun, now = self._seen.begun, time.monotonic()
        if begun != self._begun or not self._seen.is_free:
            self._begun, self._since = begun, None
            return
        if now - self._looked_at < self._patience_seconds / _LOOKS:
            return
        self._looked_at = now
        since, self._since = self._since, None
        if waits(broker, [one for one in self._seen.queues if not self._is_held_back(one)]):
            self._since = now if since is None else since


def waits(broker: BrokerView, queues: Sequence[str]) -> bool:
    """Whether a message waits in one of *queues*."""
    if broker.is_redis:
        return any(step.depth for name in queues for step in broker.steps(name, 0))
    found = broker.declared_all(queues).values()
    return any(one is not None and one[0] for one in found)
