"""Events of rows with tasks, in a Django project."""

from __future__ import annotations

from typing import Any

from celery_reliable.events.declaring import INFO, WARNING, declared


@declared(WARNING)
def row_not_published(*, task: Any, task_id: str, error: Exception) -> None:
    """The task that a row waits for could not be published.  The row stays, and
    ``celery_reliable.rows`` publishes it.
    """


@declared(WARNING)
def row_published(*, name: str, task_id: str) -> None:
    """A row waited for a task of which the ledger knew nothing.  It was published."""


@declared(WARNING)
def row_task_unknown(*, name: str, task_id: str) -> None:
    """A row waits for a task that this app does not have, so nobody publishes it."""


@declared(INFO)
def row_taken(*, task: Any, task_id: str, holder: str) -> None:
    """An attempt ended as its row is a later one's, or waits for another task: the ``holder``."""


@declared(WARNING)
def row_not_written(*, task: Any, task_id: str, error: Exception) -> None:
    """The outcome of an attempt could not be written into its row.  ``celery_reliable.rows`` writes
    it.
    """
