"""This host's clock for durations: it is never set, and runs on while the machine is suspended.

A lease runs out by the server's clock meanwhile, whatever this host sleeps through.
"""

from __future__ import annotations

import sys
import time

__all__ = ["now"]

#: Linux has a clock of its own for it; what is called monotonic stands still while suspended.  On
#: macOS it is the clock of that name, which is not the one that Python uses.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", None)
if _CLOCK is None and sys.platform == "darwin":
    _CLOCK = time.CLOCK_MONOTONIC


def now() -> float:
    """Return the seconds of this clock; they mean nothing but by their differences.

    Where the platform has no such clock (Windows, BSD) the time of a suspension is not counted.
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
