"""For Python processes under libfaketime: its `clock_nanosleep` refuses what `time.sleep` asks for.

Read before anything else where this folder is in PYTHONPATH.
"""

from __future__ import annotations

import select
import time


def _sleep(seconds: float, /) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
