"""How a proof that runs for long is broken off: it ends its servers and workers first."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["end_at_signals"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_at_signals() -> None:
    """Let the first SIGTERM or SIGINT raise KeyboardInterrupt, and the next ones do nothing.

    A runner's limit would leave all processes behind, and so would a second Ctrl-C.  For the main
    thread.
    """
    for one in _SIGNALS:
        signal.signal(one, _end)


def _end(number: int, frame: FrameType | None) -> None:
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    raise KeyboardInterrupt
