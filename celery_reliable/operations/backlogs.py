"""What waits in queues while letters are replayed into them."""

from __future__ import annotations

import time
from collections.abc import Iterable

from celery_reliable.recovery import BrokerView

__all__ = ["Backlog"]

_LOOK_SECONDS = 0.2


class Backlog:
    """Lets messages into a queue only while fewer than *most* wait there.

    So whatever else is published there waits behind about so many, and not behind all letters.
    Messages that workers have fetched and not begun are not counted.  A broker that does not tell
    how many wait holds nothing up.  Raises kombu's errors, and those of redis-py.
    """

    def __init__(self, broker: BrokerView, most: int) -> None:
        self._broker = broker
        self._most = most
        #: How many more may go to a queue before somebody looks again.
        self._left: dict[tuple[str, str], int] = {}

    def admits(self, exchange: str, routing_key: str, deadline: float | None) -> bool:
        """Return True when one more may be sent there; False when the time is over before, by
        `time.monotonic`.
        """
        where = exchange, routing_key
        while self._left.get(where, 0) < 1:
            self._left[where] = self._most - self._waiting(self._broker.reached(*where))
            if self._left[where] >= 1:
                break
            rest = _LOOK_SECONDS
            if deadline is not None:
                rest = min(rest, deadline - time.monotonic())
            if rest <= 0:
                return False
            time.sleep(rest)
        self._left[where] -= 1
        return True

    def _waiting(self, queues: Iterable[str]) -> int:
        if self._broker.is_redis:
            return max(
                (sum(step.depth for step in self._broker.steps(name, 0)) for name in queues),
                default=0,
            )
        found = self._broker.declared_all(queues).values()
        return max((one[0] for one in found if one is not None), default=0)
