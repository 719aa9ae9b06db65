"""``celery_reliable.sweep``: a pass of the sweeper as a task, for the beat schedule.

By itself, as it belongs to every app: an app whose tasks are all ours may make it while
`ReliableTask` is being imported.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import shared_task

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.sweeper import Sweeper

__all__ = ["sweep"]

logger = logging.getLogger(__name__)

_kept = threading.local()


@shared_task(
    name="celery_reliable.sweep",
    bind=True,
    ignore_result=True,
    acks_late=False,
    # Those that waited behind a busy pool are dropped when they are fetched.
    expires=10,
)
def sweep(self: Any) -> dict[str, Any] | None:
    """Run a pass of the sweeper, unless one has just finished.  For the beat schedule.

    Workers run passes by themselves when none finished within SWEEP_SECONDS, so this task may be
    late or missing.
    """
    sweeper: Sweeper | None = getattr(_kept, "sweeper", None)
    if sweeper is None or sweeper.app is not self.app:
        sweeper = _kept.sweeper = Sweeper(self.app)
    try:
        report, _ = sweeper.run_if_due()
    except LedgerUnavailable as exc:
        logger.warning("sweep_postponed error=%s", exc)
        return None
    return report.as_dict() if report is not None else None
