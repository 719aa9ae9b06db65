"""A pool of processes that take their own messages, for workers whose queues are in the ledger's
database: ``worker_pool = "celery_reliable.pool:TaskPool"``.
"""

from __future__ import annotations

from celery_reliable.pool.child import work
from celery_reliable.pool.shift import (
    N_SLOTS,
    Left,
    Limited,
    Report,
    Shift,
    call_off_shifts,
    shifts_called_off,
    slots,
)
from celery_reliable.pool.takings import steps_of
from celery_reliable.pool.task_pool import TaskPool, Told, kind_of

__all__ = [
    "N_SLOTS",
    "Left",
    "Limited",
    "Report",
    "Shift",
    "TaskPool",
    "Told",
    "call_off_shifts",
    "kind_of",
    "shifts_called_off",
    "slots",
    "steps_of",
    "work",
]
