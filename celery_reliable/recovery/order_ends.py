"""Orders that are over: what they have parked goes on."""

from __future__ import annotations

from celery import Celery

from celery_reliable import events
from celery_reliable.ledger import Ledger, answers
from celery_reliable.model import SweepReport

__all__ = ["end_orders"]

#: How often a pass lets go some of what an order has parked.
_MOST_LET_GO = 50


def end_orders(app: Celery, ledger: Ledger, report: SweepReport) -> None:
    """Let go what was parked by orders that are over, or that somebody has ended."""
    orders = ledger.orders.read()
    for order in orders.all:
        if order.is_in_force(orders.now_ms):
            continue
        for _ in range(_MOST_LET_GO):
            answer = ledger.orders.resume(order.id)
            if isinstance(answer, answers.Resumed) and answer.is_more:
                continue
            if isinstance(answer, answers.Resumed) and not order.ended_ms:
                events.order_ended(
                    app=app,
                    kind=order.kind.value,
                    target=order.target,
                    by="",
                    order=order.id,
                )
            break
        else:
            report.is_full = True
