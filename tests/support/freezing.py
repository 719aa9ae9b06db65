"""Processes that do not move, and are not gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress

import psutil

from tests.support.waiting import wait_for

FROZEN_SECONDS = 10.0

_STILL = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE})


def freeze(pids: Sequence[int]) -> None:
    """SIGSTOP to each of them, and wait until none of them moves.

    One that runs on another core goes on for a moment after it was sent.
    """
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(_is_still(pid) for pid in pids), FROZEN_SECONDS, f"{pids} to stand still")


def _is_still(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in _STILL
    except psutil.NoSuchProcess:
        return True
