"""The row beside the task: a model that says how far its task is, and a task whose effect happens
once.

A row is the publication: what was committed and never published is found and published.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_reliable.contrib.django.rows.attempts import Effect as Effect
    from celery_reliable.contrib.django.rows.model import TaskRow as TaskRow
    from celery_reliable.contrib.django.rows.model import TaskStatus as TaskStatus
    from celery_reliable.contrib.django.rows.reconciling import look_after_rows as look_after_rows
    from celery_reliable.contrib.django.rows.task import RowTask as RowTask
    from celery_reliable.exceptions import RowTaken as RowTaken

__all__ = ["Effect", "RowTaken", "RowTask", "TaskRow", "TaskStatus", "look_after_rows"]

#: Where each is.  Imported when it is asked for: models need Django's settings and apps.
_PLACES = {
    "Effect": "celery_reliable.contrib.django.rows.attempts",
    "RowTaken": "celery_reliable.exceptions",
    "RowTask": "celery_reliable.contrib.django.rows.task",
    "TaskRow": "celery_reliable.contrib.django.rows.model",
    "TaskStatus": "celery_reliable.contrib.django.rows.model",
    "look_after_rows": "celery_reliable.contrib.django.rows.reconciling",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PLACES[name]), name)
