"""Workers that Celery starts in a thread of somebody's tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from celery_reliable.context import WorkerProcess, current_worker, set_current_worker

__all__ = ["finish_when_embedded"]

#: Imported by whoever starts such a worker, as its fixtures do; by nobody else.
_MODULE = "celery.contrib.testing.worker"


def finish_when_embedded(w: Any, process: WorkerProcess, finish: Callable[[], None]) -> None:
    """Call *finish* when a worker has ended that Celery's ``start_worker`` runs in this process.

    Such a worker ends coldly: Celery sends no ``worker_shutdown``, and the process goes on, as a
    part of no worker.  Does nothing for any other worker.
    """
    testing = sys.modules.get(_MODULE)
    if testing is None or not isinstance(w, testing.TestWorkController):
        return

    def ended(worker: Any = None, **kwargs: Any) -> None:
        if worker is w:
            testing.test_worker_stopped.disconnect(ended, sender=w.app)
            finish()
            if current_worker() is process:
                set_current_worker(None)

    testing.test_worker_stopped.connect(ended, sender=w.app, weak=False)
