"""The steps that an app's workers get."""

from __future__ import annotations

from celery import Celery

from celery_reliable.worker.consumer_step import ConsumerStep
from celery_reliable.worker.worker_step import WorkerStep

__all__ = ["install"]


def install(app: Celery) -> None:
    """Give *app*'s workers their steps.  Repeating it changes nothing."""
    app.steps["worker"].add(WorkerStep)
    app.steps["consumer"].add(ConsumerStep)
