"""Durations in words, and this host's clock for durations, which is never set, and runs on while
the machine is suspended.

A lease runs out by the ledger's clock meanwhile, whatever this host sleeps through.
"""

from __future__ import annotations

import sys
import time

__all__ = ["now", "span"]

_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))

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
