"""The shop's Celery app and its tasks. A worker of it needs no Django."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import redis
from celery import Celery

from celery_reliable import ReliableTask

#: Keys of the shop's own database: whether the payments answer again, and the gate of what is long.
MENDED, OPEN = "mended", "open"
OWN_DB = 3

#: What is in arguments, and nobody's to see without asking.
SECRET = "4111-1111-1111-1111"

RELIABLE = {"SWEEP_SECONDS": 1}

# A task that waits for what never comes must not outlive the test run.
_GATE_SECONDS = 240.0
_TICK_SECONDS = 0.05


class PaymentsUnreachable(Exception):
    """What a charge ends with while the payments do not answer."""


def charge(self: Any, order: int, card: str = "") -> str:
    """Charge an order, if the payments answer."""
    if not self.app.own.exists(MENDED):
        raise PaymentsUnreachable("payments.example:443 did not answer within 5 s")
    self.app.own.sadd("charged", order)
    return f"charged order {order}"


def refund(self: Any, order: int, amount: str) -> str:
    """Refund an amount, which must be a number."""
    number = float(amount)
    return f"refunded {number} of order {order}"


def resize(self: Any, picture: str) -> None:
    """Die of a picture, as a process that runs out of memory does."""
    os.kill(os.getpid(), signal.SIGKILL)


def count_stock(self: Any, shelf: str) -> str:
    """Count until the gate is open, with the shelf to itself."""
    until = time.monotonic() + _GATE_SECONDS
    while time.monotonic() < until and not self.app.own.exists(OPEN):
        time.sleep(_TICK_SECONDS)
    return shelf


def remind(self: Any, customer: int) -> int:
    """Do nothing, later."""
    return customer


_TASKS: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("billing.charge", charge, {}),
    ("billing.refund", refund, {}),
    ("images.resize", resize, {"max_losses": 0}),
    ("stock.count", count_stock, {"object_id": "shelf", "on_conflict": "wait"}),
    ("mail.remind", remind, {}),
)


def create_app(broker_url: str) -> Celery:
    """The shop's app, which is not the current one."""
    app = Celery("shop", broker=broker_url, backend=f"{broker_url[:-1]}1", set_as_current=False)
    app.conf.broker_connection_retry_on_startup = True
    app.conf.reliable = RELIABLE
    app.own = redis.Redis.from_url(f"{broker_url[:-1]}{OWN_DB}")
    # Not shared: a shared task would turn up in the app of every later test of this process.
    for name, body, options in _TASKS:
        app.task(body, bind=True, shared=False, base=ReliableTask, name=name, **options)
    return app
