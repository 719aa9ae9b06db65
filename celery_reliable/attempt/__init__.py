"""One attempt, in the process that runs it: claim, lock, Celery's own tracer, settle."""

from __future__ import annotations

from celery_reliable.attempt.claiming import claim_or_record, free_object
from celery_reliable.attempt.conclusion import bury
from celery_reliable.attempt.delivery import DELIVERY, EARLY, MESSAGE, NotBegun
from celery_reliable.attempt.execution import (
    Uninterrupted,
    around,
    fetched_requests,
    guarded,
    is_touched,
    running_requests,
)
from celery_reliable.attempt.replacement import bequeathing

__all__ = [
    "DELIVERY",
    "EARLY",
    "MESSAGE",
    "NotBegun",
    "Uninterrupted",
    "around",
    "bequeathing",
    "bury",
    "claim_or_record",
    "fetched_requests",
    "free_object",
    "guarded",
    "is_touched",
    "running_requests",
]
