"""The app of the benchmark: one task that does nothing, with our base or with Celery's own."""

from __future__ import annotations

import os

from celery import Celery, Task

from celery_reliable import ReliableTask

app = Celery("benchmark", broker=os.environ["BROKER_URL"], backend=os.environ["RESULT_URL"])


@app.task(
    base=Task if os.environ.get("STOCK") else ReliableTask,
    acks_late=True,
    name="benchmark.noop",
)
def noop() -> None:
    """Do nothing."""


def publish(count: int) -> None:
    """Publish so many of them, one after the other."""
    for _ in range(count):
        noop.delay()
