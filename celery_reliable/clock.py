"""Times and durations in words, and this host's clock for durations, which is never set, and runs
on while the machine is suspended.

A lease runs out by the ledger's clock meanwhile, whatever this host sleeps through.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime, timezone

__all__ = ["at", "moment", "now", "parse_age", "span", "utc"]

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_ASKED = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhd]?)")

#: Linux has a clock of its own for it; what is called monotonic stands still while suspended.  On
#: macOS it is the clock of that name, which is not the one that Python uses.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)
if _CLOCK is None and sys.platform == "darwin":
    _CLOCK = time.CLOCK_MONOTONIC


def now() -> float:
    """Return the seconds of this clock; they mean nothing but by their differences.

    Where the platform has no such clock (BSD) the time of a suspension is not counted.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


def span(seconds: float) -> str:
    """Return a length of time in its two largest units: 2 h 5 min; below ten seconds, 3.2 s."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, words = round(seconds), []
    for name, length in _UNITS:
        count, left = divmod(left, length)
        words.append(f"{count} {name}" if count else "")
    largest = next(place for place, word in enumerate(words) if word)
    return " ".join(filter(None, words[largest : largest + 2]))


def parse_age(text: str, least: float = 0.0, most: float | None = None) -> float:
    """Return the seconds of a length of time: 90, 15m, 2h, 3d; from *least* to *most*.  Raises
    ValueError, which says what is wrong.
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:50]!r} is no length of time: 90 (seconds), 15m, 2h or 3d.")
    seconds = float(match[1]) * _ASKED[match[2]]
    if seconds < least or (most is not None and seconds > most):
        at_most = "" if most is None else f" and at most {most:g}"
        raise ValueError(f"It is at least {least:g} seconds{at_most}.")
    return seconds


def utc(ms: int) -> datetime:
    """Return a time in ms as one in UTC."""
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def moment(ms: int | None) -> datetime | None:
    """Return the same; None for none, and for 0."""
    return utc(ms) if ms else None


def at(when: datetime | int | None) -> str:
    """Return a time, or one in ms, to the second for a sentence: 2026-11-22 16:40:05 UTC."""
    found = when if isinstance(when, datetime) else utc(when or 0)
    return f"{found:%Y-%m-%d %H:%M:%S} UTC"
