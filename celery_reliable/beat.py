"""``celery_reliable.sweep``: a pass of the sweeper as a task, for the beat schedule.

Every app has this task.  An app whose tasks are all ours may make it while `ReliableTask` is still
being imported, so this module imports nothing of the package that does work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from celery import Task, shared_task

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.log import logger

__all__ = ["sweep"]

_kept = threading.local()

_NAME = "celery_reliable.sweep"


def _is_news(record: logging.LogRecord) -> bool:
    """Keep from the log that a pass was sent, received and has succeeded, every few seconds.

    The sweeper itself logs what a pass has done.
    """
    args = record.args
    # Celery's own records have what they are about in a dictionary; beat's in a tuple.
    names = (args.get("name"),) if isinstance(args, Mapping) else args
    return record.levelno > logging.INFO or _NAME not in (names or ())


for _place in ("celery.beat", "celery.worker.strategy", "celery.app.trace"):
    logging.getLogger(_place).addFilter(_is_news)  # noqa: TID251


@shared_task(
    # Plain, whatever the app's other tasks are.
    base=Task,
    name=_NAME,
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

    sweeper: Sweeper | None = getattr(_kept, "sweeper", None)
    if sweeper is None or sweeper.app is not self.app:
        sweeper = _kept.sweeper = Sweeper(self.app)
    try:
        report, _ = sweeper.run_if_due()
    except LedgerUnavailable as exc:
        logger.warning("pass_failed error=%s", exc, exc_info=exc)
        return None
    return asdict(report) if report is not None else None
