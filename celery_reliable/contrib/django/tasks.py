"""``celery_reliable.rows``: what looks after rows with tasks, for the beat schedule."""

from __future__ import annotations

from typing import Any

from celery import Task, shared_task

__all__ = ["rows"]


@shared_task(
    # Plain, whatever the app's other tasks are: the next one does what this one has not.
    base=Task,
    name="celery_reliable.rows",
    bind=True,
    ignore_result=True,
    acks_late=False,
    # Those that waited behind a busy pool are dropped when they are fetched.
    expires=30,
)
def rows(self: Any, older_than_seconds: float = 60.0) -> dict[str, int]:
    """Publish rows that were committed and never published, and tell rows what became of their
    tasks.  Once a minute is often enough.
    """
    from celery_reliable.contrib.django.rows import look_after_rows

    return look_after_rows(self.app, older_than_seconds=older_than_seconds)
