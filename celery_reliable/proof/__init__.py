"""What shows that the package does what it promises: its model, and the check of traces on it.

`model` is what the ledger may answer and leave, in plain Python; `traces` replays on it what the
scripts really did.  Nothing but an operator's command imports this package.
"""

from __future__ import annotations

from celery_reliable.proof.model import RULES, Call, answers
from celery_reliable.proof.traces import (
    BY_HAND,
    Entry,
    LiveValidator,
    Rejected,
    Result,
    Validator,
    checked,
    entries,
)

__all__ = [
    "BY_HAND",
    "RULES",
    "Call",
    "Entry",
    "LiveValidator",
    "Rejected",
    "Result",
    "Validator",
    "answers",
    "checked",
    "entries",
]
