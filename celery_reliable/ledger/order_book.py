"""Orders of operators: what is paused, struck or drained, and what waits for that."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from celery_reliable.ledger.answers import Ordered, ResumeAnswer, StopAnswer
from celery_reliable.ledger.caller import Part, clock_of, ms_of, text_of
from celery_reliable.orders import Order, OrderKind, Orders

__all__ = ["OrderBook"]


#: So many tasks are let go by one step: Redis is busy with them for about a millisecond.
_AT_ONCE = 200


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

    def stop(self, task_id: str, owner: str, how: str) -> StopAnswer:
        """Tell the worker *owner* to end a task that runs there and was revoked; *how*: "stop" or
        "kill".
        """
        return self._caller.run(self.calls.stop(id=task_id, owner=owner, how=how))
