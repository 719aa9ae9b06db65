"""Hears of tasks with rows that were lost, buried or replayed, and has their rows looked at."""

from __future__ import annotations

from typing import Any

from celery_reliable.contrib.django.project import project_app
from celery_reliable.log import logger
from celery_reliable.signals import dead_letter_replayed, task_buried, task_lost

__all__ = ["listen"]

_OURS = "celery_reliable.rows"


def listen() -> None:
    """Be told of all that the process of a task cannot write into its row itself.

    A signal promises no delivery.  What nobody hears is written by the next run of the same task
    from the beat schedule.
    """
    for signal in (task_lost, task_buried, dead_letter_replayed):
        signal.connect(_have_looked_at, dispatch_uid=_OURS)


def _have_looked_at(sender: Any, task_id: str, **_: Any) -> None:
    app = project_app()
    if app is None or not app.finalized or _OURS not in app.tasks:
        return
    # By its option: the task's module may not be imported here, and is not to be.
    task = app.tasks.get(sender)
    if getattr(type(task), "row_model", None) is None:
        return
    try:
        # By a message, and not here: this may be the main process of a worker, or its sweeper,
        # which must not wait for a database.
        app.tasks[_OURS].apply_async(kwargs={"task_ids": [task_id]}, retry=False)
    except Exception as exc:
        # kombu raises what its transports do.
        logger.warning("row_not_written name=%s id=%s error=%s", task.name, task_id, exc)
