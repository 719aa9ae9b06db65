"""How a proof that runs for long is broken off: it ends its servers and workers first."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

__all__ = ["end_at_signals", "ending_all"]

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_GONE_SECONDS = 10.0
_ROUNDS = 10


def end_at_signals() -> None:
    """Let the first SIGTERM or SIGINT raise KeyboardInterrupt, and the next ones do nothing.

    A runner's limit would leave all processes behind, and so would a second Ctrl-C.  For the main
    thread.
    """
    for one in _SIGNALS:
        signal.signal(one, _end)


@contextmanager
def ending_all() -> Iterator[None]:
    """Kill at the end what this process has started and has not ended, and what those have started.

    A signal may come when a process has just been started, and nobody has noted its pid yet.
    """
    try:
        yield
    finally:
        _ignore_signals()
        # What is killed may have started another one meanwhile.
        for _ in range(_ROUNDS):
            left = [one for one in psutil.Process().children(recursive=True) if _runs(one)]
            if not left:
                break
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(left, _GONE_SECONDS)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _end(number: int, frame: FrameType | None) -> None:
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
