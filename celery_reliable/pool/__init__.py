"""The pool of prefork workers: where queues and ledger are in one database, its processes take
their own messages.
"""

from __future__ import annotations

from celery_reliable.pool.child import take_steps_of, work
from celery_reliable.pool.prefork import TaskPool, Told, kind_of
from celery_reliable.pool.shift import (
    N_SLOTS,
    Left,
    Limited,
    Report,
    Shift,
    call_off_shifts,
    note_revoked,
    note_revoked_stamps,
    share_memory,
    shifts_called_off,
    slot_of,
)

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
    "note_revoked",
    "note_revoked_stamps",
    "share_memory",
    "shifts_called_off",
    "slot_of",
    "take_steps_of",
    "work",
]
