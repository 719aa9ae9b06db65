"""Recovery: passes that find what dead or stuck workers, and lost messages, left undone."""

from __future__ import annotations

from celery_reliable.recovery.announcements import (
    is_in_chord,
    stored_end,
    stored_task,
    try_to_announce,
)
from celery_reliable.recovery.broker_view import BrokerView, Step
from celery_reliable.recovery.losses import Losses
from celery_reliable.recovery.named_tasks import empty_own_queue
from celery_reliable.recovery.returns import MOST_BYTES, is_over
from celery_reliable.recovery.revocations import (
    RecordingControl,
    call_off,
    call_off_task,
)
from celery_reliable.recovery.sweeper import MOST_PASSES_IN_A_ROW, Sweeper, end_orders

__all__ = [
    "MOST_BYTES",
    "MOST_PASSES_IN_A_ROW",
    "BrokerView",
    "Losses",
    "RecordingControl",
    "Step",
    "Sweeper",
    "call_off",
    "call_off_task",
    "empty_own_queue",
    "end_orders",
    "is_in_chord",
    "is_over",
    "stored_end",
    "stored_task",
    "try_to_announce",
]
