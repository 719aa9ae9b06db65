"""What holds tasks back: a moment that is still to come, that of an ETA or the next one of a rate;
and orders of operators: what is paused, struck or drained, and what waits for that.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable
from typing import Any

import redis

from celery_reliable.compat.redis import has_something_to_read
from celery_reliable.ledger.answers import Ordered, ResumeAnswer, WaitAnswer, WakeAnswer
from celery_reliable.ledger.caller import Part, clock_of, ms_of
from celery_reliable.ledger.connector import Connector
from celery_reliable.ledger.schema import Keys, text_of
from celery_reliable.ledger.transitions import Step
from celery_reliable.model import Rate
from celery_reliable.orders import Order, OrderKind, Orders

__all__ = ["Bell", "Moments", "OrderBook"]

#: A wait for the bell is given up after that: its connection may be gone without a sign.
_LISTEN_SECONDS, _GONE_SECONDS = 30, 40

#: So many tasks are let go by one step: Redis is busy with them for about a millisecond.
_AT_ONCE = 200


class Bell:
    """Rings when a task is to begin before all that wait: heard on a connection of its own, for
    one thread.
    """

    def __init__(self, connector: Connector, keys: Keys) -> None:
        self._pool = connector.client().connection_pool
        self._key = keys.bell
        self._connection: Any = None
        #: Since when its answer is awaited (monotonic); 0: it is not asked.
        self._asked_at = 0.0

    def wait(self, seconds: float) -> bool:
        """Wait so long, or until it rings; False where it cannot be heard."""
        try:
            if self._asked_at and time.monotonic() - self._asked_at > _GONE_SECONDS:
                self.close()
            if self._connection is None:
                self._connection = self._pool.make_connection()
            if not self._asked_at:
                # Every user who may consume may pop, too.
                self._connection.send_command("BRPOP", self._key, _LISTEN_SECONDS)
                self._asked_at = time.monotonic()
            if has_something_to_read(self._connection, seconds):
                self._asked_at = 0.0
                self._connection.read_response()
        except (redis.RedisError, OSError):
            self.close()
            return False
        return True

    def close(self) -> None:
        """Hear it no more until the next `wait`."""
        if self._connection is not None:
            self._connection.disconnect()
        self._asked_at = 0.0


class Moments(Part):
    """When tasks may begin that may not begin yet."""

    def wait(
        self,
        task_id: str,
        wait: Rate | float,
        *,
        epoch: str,
        queue: str = "",
        patience_seconds: float | None = None,
    ) -> WaitAnswer:
        """Ask for the moment of a publication: it is now, or the task waits until then.

        *wait*: its rate, or the seconds until its ETA.  *queue*: the list on this server that its
        message goes into at its moment, as it is; without it `wake` returns the task.
        """
        step = self.wait_step(task_id, wait, epoch=epoch, queue=queue)
        return self._caller.run(step, patience_seconds)

    def wait_step(
        self,
        task_id: str,
        wait: Rate | float,
        *,
        epoch: str,
        queue: str = "",
        reason: str = "time",
    ) -> Step[WaitAnswer]:
        """Return the call of `wait` unsent: a claim may be made in one step with it.

        *reason*: what it waits for, if not for its rate.  After a reason of two words, such as that
        of a rate, its message goes in front of its queue, as it has had its turn there.
        """
        if isinstance(wait, Rate):
            asked: dict[str, Any] = {"interval_us": wait.interval_us, "key": wait.key}
            reason = f"rate {wait.key}"
        else:
            asked = {"in_ms": math.ceil(wait * 1000), "key": ""}
        return self.calls.wait(id=task_id, epoch=epoch, waits_for=reason, list=queue, **asked)

    def wake(self, worker: str, *, lease_ms: int, limit: int, due_in_ms: int) -> WakeAnswer:
        """Let out at most *limit* tasks whose moment has come, and return those that are to be
        sent; what is returned and not sent is due, for the sweeper.

        One *worker* does so for *lease_ms* after each call; to the others the answer is Another.
        *due_in_ms*: when somebody looks whether a worker has claimed what was sent.
        """
        return self._caller.run(
            self.calls.wake(who=worker, lease_ms=lease_ms, limit=limit, due_in_ms=due_in_ms)
        )


class OrderBook(Part):
    """The orders."""

    def read(self, patience_seconds: float | None = None) -> Orders:
        """Return all orders, those too that are over and have still something to let go."""
        found, *time = self._caller.read_all(
            "orders", [("HGETALL", self.keys.orders), *clock_of(self.keys)], patience_seconds
        )
        texts = {text_of(name): text_of(value) for name, value in found.items()}
        return Orders.of(texts, ms_of(*time))

    def waiting(self, order_ids: Iterable[str]) -> dict[str, int]:
        """Return how many tasks wait for the end of each order."""
        wanted = list(order_ids)
        lines = [self.keys.waiting(f"order {one}") for one in wanted]
        counts = self._caller.read_all("waiting", [("ZCARD", line) for line in lines])
        return dict(zip(wanted, counts, strict=True))

    def give(
        self,
        kind: OrderKind,
        target: str,
        *,
        object_id: str | None = None,
        is_stop: bool = False,
        by: str,
        why: str,
        for_ms: int = 0,
    ) -> Order:
        """Give an order and return it.  *for_ms*: for how long; 0: until it is resumed."""
        order_id = secrets.token_hex(4)
        while True:
            seen = self.read()
            step = self.calls.order(
                id=order_id,
                kind=kind.value,
                target=target,
                object=object_id or "",
                has_object=object_id is not None,
                is_stop=is_stop,
                by=by,
                why=why,
                for_ms=for_ms,
                version=seen.version,
            )
            if isinstance(self._caller.run(step), Ordered):
                break
        given = next((one for one in self.read().all if one.id == order_id), None)
        # Somebody may have ended it already.
        return given or Order(order_id, kind, target, object_id, is_stop, by, why)

    def resume(self, order_id: str, *, by: str = "", limit: int = _AT_ONCE) -> ResumeAnswer:
        """End an order, and make what waits for it due, at most *limit* tasks, the first published
        first.  Without *by* only one whose time is over, or that was ended before.
        """
        return self._caller.run(self.calls.resume(id=order_id, by=by, limit=limit))
