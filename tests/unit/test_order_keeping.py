"""What a worker that keeps an order hands to its pool, and what it gives back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from celery_reliable.compat.notes import note
from celery_reliable.context import WorkerProcess
from celery_reliable.orders import Order, OrderKind, Orders
from celery_reliable.worker.order_keeping import OrderKeeping

DRAIN = Order("1", OrderKind.DRAIN, "celery@here")


class Request(SimpleNamespace):
    """Celery keeps those that it knows by weak references."""

    __hash__ = object.__hash__


class Worker:
    """A worker that was told to take nothing new, with the pool that it hands requests to."""

    def __init__(self) -> None:
        self.app = Celery("orders", broker="redis://127.0.0.1:1", set_as_current=False)
        self.begun: list[Any] = []
        self.given_back: list[str] = []
        self._process_task = self.process_task = self.begun.append
        process = WorkerProcess("celery@here")
        process.obey(Orders(1, 0, (DRAIN,)))
        OrderKeeping(self, process).install()

    def request(self, **notes: Any) -> Any:
        qos = SimpleNamespace(give_back=self.given_back.append)
        message = SimpleNamespace(
            delivery_tag="tag", delivery_info={}, channel=SimpleNamespace(qos=qos)
        )
        for name, value in notes.items():
            note(message, name, value)
        return Request(id="task", name="app.work", message=message, task=None)


def strike(order_id: str, **times: int) -> Order:
    return Order(order_id, OrderKind.STRIKE, "app.work", given_ms=1, **times)


@pytest.mark.parametrize(
    ("then", "over_ms"),
    [
        (Orders(2, 900, (strike("1"), strike("2"))), 0),
        (Orders(2, 900, (strike("1"), strike("2"), strike("3"))), 0),
        # It was resumed at 850, and lets go what it has parked; or has done so.
        (Orders(850, 900, (strike("1", ended_ms=850), strike("2"))), 850),
        (Orders(850, 900, (strike("2"),)), 850),
        # Its time is over, of which nobody has to tell.
        (Orders(2, 900, (strike("1", until_ms=700), strike("2"))), 700),
        (Orders(2, 900, (strike("1", until_ms=901), strike("2"))), 0),
    ],
)
def test_it_is_known_when_a_strike_was_over(then: Orders, over_ms: int) -> None:
    before = Orders(2, 600, (strike("1", until_ms=then.all[0].until_ms), strike("2")))

    assert then.strikes_over_since(before) == over_ms
    assert then.strikes_over_since(then) == 0


def test_other_orders_park_nothing_that_would_go_on() -> None:
    assert Orders(850, 900).strikes_over_since(Orders(1, 600, (DRAIN,))) == 0


@pytest.mark.parametrize("is_early", [False, True])
def test_only_what_nobody_has_claimed_goes_back(is_early: bool) -> None:
    """A claim whose message went back alone would be a loss of the task."""
    worker = Worker()
    request = worker.request(early=object()) if is_early else worker.request()

    worker.process_task(request)

    assert worker.begun == ([request] if is_early else [])
    assert worker.given_back == ([] if is_early else ["tag"])
