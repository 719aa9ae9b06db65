"""Traces of what the scripts really did, and their check on the model."""

from __future__ import annotations

from proof.traces.entries import BY_HAND, Entry, entries
from proof.traces.validator import Rejected, Result, Validator, checked

__all__ = [
    "BY_HAND",
    "Entry",
    "Rejected",
    "Result",
    "Validator",
    "checked",
    "entries",
]
