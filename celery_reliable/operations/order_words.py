"""Orders of operators in words."""

from __future__ import annotations

from celery_reliable.operations.times import at
from celery_reliable.orders import Order, OrderKind

__all__ = ["NOUNS", "in_words"]

#: What an order names.
NOUNS = {OrderKind.PAUSE: "queue", OrderKind.STRIKE: "task", OrderKind.DRAIN: "worker"}
_DONE = {
    OrderKind.PAUSE: "is paused",
    OrderKind.STRIKE: "is struck",
    OrderKind.DRAIN: "is drained",
}


def in_words(order: Order) -> str:
    """Return what an order does, by whom, why, and until when, as a part of a sentence."""
    of = "" if order.object_id is None else f" (object {order.object_id})"
    why = f": {order.why}" if order.why else ""
    until = f"until {at(order.until_ms)}" if order.until_ms else "until it is resumed"
    return (
        f"{NOUNS[order.kind]} {order.target}{of} {_DONE[order.kind]} since {at(order.given_ms)}, "
        f"{until}, by {order.by or 'somebody'} (order {order.id}){why}"
    )
