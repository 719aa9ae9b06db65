"""The Django app. It tells the package where Django's settings are."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections

from celery_reliable import app
from celery_reliable.contrib.django.checks import SERVER_TAG, check_project, check_servers
from celery_reliable.contrib.django.project import project_app, remember_app
from celery_reliable.log import logger
from celery_reliable.signals import dead_letter_replayed, task_buried, task_lost

__all__ = ["CeleryReliableConfig"]

_ROWS = "celery_reliable.rows"


class CeleryReliableConfig(AppConfig):
    """Installed as ``celery_reliable.contrib.django``; its label is ``celery_reliable``."""

    name = "celery_reliable.contrib.django"
    label = "celery_reliable"
    verbose_name = "Celery, reliable"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tell the package where its settings are, and register the checks."""
        remember_app()
        app.Reliable.framework = _Django()
        # A signal promises no delivery.  What nobody receives is written by the next run of the
        # same task from the beat schedule.
        for signal in (task_lost, task_buried, dead_letter_replayed):
            signal.connect(_look_after_row, dispatch_uid=_ROWS)
        checks.register(check_project)
        checks.register(check_servers, SERVER_TAG, deploy=True)


def _look_after_row(sender: Any, task_id: str, **_: Any) -> None:
    """Have the row of a task written whose process cannot do it itself."""
    project = project_app()
    # By its option: the task's module may not be imported here, and is not to be.
    task = project.tasks.get(sender) if project is not None and project.finalized else None
    if project is None or getattr(type(task), "row_model", None) is None:
        return
    try:
        # By a message, and not here: this may be the main process of a worker, or its sweeper,
        # which must not wait for a database.
        project.tasks[_ROWS].apply_async(kwargs={"task_ids": [task_id]}, retry=False)
    except Exception as exc:
        # kombu raises what its transports do.
        logger.warning("row_not_written name=%s id=%s error=%s", sender, task_id, exc)


class _Django(app.Framework):
    """What Django tells of the project."""

    def settings(self) -> Any:
        return getattr(settings, "CELERY_RELIABLE", None)

    def drop_lost_connections(self) -> None:
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()
