"""The child processes of a worker: which of them run, and how one is stopped."""

from __future__ import annotations

import os
import signal
import sys
import time

__all__ = ["end_child", "is_running_child"]

#: As long as billiard waits between SIGTERM and SIGKILL.
_TERM_SECONDS = 0.1
#: A killed process is gone within milliseconds, unless it hangs in the kernel.
_KILL_SECONDS = 1.0
_LOOK_SECONDS = 0.005


def is_running_child(pid: int | None) -> bool:
    """Whether *pid* is a child process of this one that has not ended.

    False for what other pools call a pid: this process, or the number of a greenlet.
    """
    if pid is None or pid <= 0 or pid == os.getpid():
        return False
    try:
        if sys.platform == "darwin":
            # Before Python 3.13 it has no `waitid`; an ended child counts until it is waited for.
            return os.getpgid(pid) in (pid, os.getpgrp())
        # WNOWAIT: the pool is to notice its end too.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except (OSError, OverflowError):
        return False


def end_child(pid: int | None) -> None:
    """Stop a child process, as billiard does: SIGTERM, and shortly after it SIGKILL."""
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        if pid is None or not is_running_child(pid):
            return
        os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while is_running_child(pid) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
