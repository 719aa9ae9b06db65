"""Which values an option may have: each check says what a value has to be, or "" if it will do."""

from __future__ import annotations

from typing import Any

from celery_reliable.settings import MAX_SECONDS

__all__ = ["is_number", "seconds_problem", "whole_number_problem"]

#: The ledger counts in milliseconds, and 0 of them mean no limit.
_LEAST_SECONDS = 0.001


def is_number(value: Any) -> bool:
    """Whether it is a number.  A bool is an int in Python; here it is a mistake."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def seconds_problem(value: Any) -> str:
    """Check a number of seconds that limits something."""
    if is_number(value) and _LEAST_SECONDS <= value <= MAX_SECONDS:
        return ""
    return f"a number of seconds from {_LEAST_SECONDS:g} to {MAX_SECONDS:.0f}, or None"


def whole_number_problem(value: Any, least: int, most: int | None = None) -> str:
    """Check a count."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and least <= value and (most is None or value <= most):
        return ""
    return (
        f"a whole number of {least} or more"
        if most is None
        else f"a whole number from {least} to {most}"
    )
