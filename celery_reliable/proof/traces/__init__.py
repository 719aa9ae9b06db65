"""Traces of what the scripts really did, and their check on the model."""

from __future__ import annotations

from celery_reliable.proof.traces.entries import BY_HAND, Entry, entries
from celery_reliable.proof.traces.live import LiveValidator
from celery_reliable.proof.traces.validator import Rejected, Result, Validator, checked

__all__ = [
    "BY_HAND",
    "Entry",
    "LiveValidator",
    "Rejected",
    "Result",
    "Validator",
    "checked",
    "entries",
]
