"""A plugin of pytest for Celery's own integration tests: what their tasks are based on.

`CELERY_SUITE_BASE` says it: "reliable" or "stock".
"""

from __future__ import annotations

import os
from typing import Any

import celery
import pytest
from celery import Celery
from celery.app.control import Control

BASE = os.environ["CELERY_SUITE_BASE"]


def _purge(self: Any, connection: Any = None) -> int:
    """As the README says: Celery's own purge empties queues and not the ledger, so that what one
    test leaves would run in the next.
    """
    from celery_reliable.operations.queues import purge

    return purge(self.app, list(self.app.amqp.queues)).messages


if BASE == "reliable":
    from celery_reliable import ReliableTask

    # For the tasks that name no base, and for classes that are derived from Celery's.
    Celery.task_cls = ReliableTask
    celery.Task = ReliableTask
    Control.purge = _purge


@pytest.fixture(scope="session", autouse=True)
def every_task_has_it(celery_session_app: Celery) -> None:
    """Nothing is shown by tasks that have stayed plain."""
    if BASE != "reliable":
        return
    from celery_reliable import ReliableTask

    tasks = celery_session_app.tasks.items()
    plain = [
        name
        for name, task in tasks
        if not isinstance(task, ReliableTask)
        and not name.startswith(("celery.", "celery_reliable."))
    ]
    assert not plain, plain
