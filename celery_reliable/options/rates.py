"""Rates: how many attempts of a task may begin in a time, in Celery's own notation, and whether of
each object.
"""

from __future__ import annotations

import re

from celery_reliable.settings import Rule, or_none, that

__all__ = ["RATE", "interval_us", "is_per_object"]

_SECONDS = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"(\d{1,7}(?:\.\d{1,6})?)/([smh])( per object)?")
#: A day between two, and a million a second.
_LONGEST_US, _SHORTEST_US = 86_400_000_000, 1


def interval_us(rate: str) -> int:
    """Return the microseconds between two beginnings; 0 for what is no rate."""
    match = _RATE.fullmatch(rate)
    count = float(match[1]) if match else 0.0
    if not match or not count:
        return 0
    interval = round(_SECONDS[match[2]] * 1_000_000 / count)
    return interval if _SHORTEST_US <= interval <= _LONGEST_US else 0


def is_per_object(rate: str | None) -> bool:
    """Whether each object has a rate for itself; otherwise all calls of the task share it."""
    match = _RATE.fullmatch(rate or "")
    return match is not None and match[3] is not None


RATE: Rule = or_none(
    that(
        lambda rate: isinstance(rate, str) and interval_us(rate),
        "a rate such as '100/m' (a number, and /s, /m or /h: per second, minute or hour; one a day "
        "at least), or such as '100/m per object'",
    )
)
