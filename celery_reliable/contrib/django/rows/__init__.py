"""The row beside the task: a model that says how far its task is, and a task whose effect happens
once.

A row is the publication: what was committed and never published is found and published.
"""

from __future__ import annotations

from celery_reliable.contrib.django.rows.attempts import Effect
from celery_reliable.contrib.django.rows.model import TaskRow, TaskStatus
from celery_reliable.contrib.django.rows.reconciling import look_after_rows
from celery_reliable.contrib.django.rows.task import RowTask
from celery_reliable.exceptions import RowTaken

__all__ = ["Effect", "RowTaken", "RowTask", "TaskRow", "TaskStatus", "look_after_rows"]
