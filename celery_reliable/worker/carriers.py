"""Celery's own tasks that carry others, in a worker: their reliable twins run what is recorded."""

from __future__ import annotations

from typing import Any

from kombu.utils.imports import symbol_by_name

from celery_reliable.message import Stamp
from celery_reliable.publishing import CARRIERS

__all__ = ["strategy"]


def strategy(task: Any, app: Any, consumer: Any, **options: Any) -> Any:
    """Return what takes the messages of such a task: a stamped one is the twin's."""
    twin = app.tasks[CARRIERS[task.name]]
    take_own, take_twins = (
        symbol_by_name(twin.Strategy)(one, app, consumer, **options) for one in (task, twin)
    )

    def take(message: Any, *args: Any, **kwargs: Any) -> Any:
        if not Stamp.of(message.headers).generation:
            return take_own(message, *args, **kwargs)
        # By its name a process of the pool finds the task.
        message.headers["task"] = twin.name
        return take_twins(message, *args, **kwargs)

    return take
