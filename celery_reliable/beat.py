"""``celery_reliable.sweep``: a pass of the sweeper as a task, for the beat schedule.

Every app has this task.  An app whose tasks are all ours may make it while `ReliableTask` is still
being imported, so this module imports nothing of the package that does work.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from typing import Any

from celery import Task, shared_task

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.log import logger

__all__ = ["sweep"]


@shared_task(
    # Plain, whatever the app's other tasks are.
    base=Task,
    name="celery_reliable.sweep",
    bind=True,
    ignore_result=True,
    acks_late=False,
    # Those that waited behind a busy pool are dropped when they are fetched.
    expires=10,
)
def sweep(self: Any) -> dict[str, Any] | None:
    """Run a pass of the sweeper, unless one has just finished.  For the beat schedule, if at all:
    workers run passes by themselves whenever none finished within SWEEP_SECONDS.
    """
    # A process that runs no pass loads none of the recovery.
    from celery_reliable.recovery import Sweeper

    try:
        with closing(Sweeper(self.app)) as sweeper:
            report, _ = sweeper.run_if_due()
    except LedgerUnavailable as exc:
        logger.warning("pass_failed error=%s", exc, exc_info=exc)
        return None
    return asdict(report) if report is not None else None
