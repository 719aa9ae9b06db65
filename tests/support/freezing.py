"""Processes that do not move, and are not gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import psutil

from tests.support.waiting import wait_for

FROZEN_SECONDS = 10.0

_STILL = frozenset({psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP, psutil.STATUS_ZOMBIE})


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until it does not move."""
    os.kill(pid, signal.SIGSTOP)
    wait_until_still([pid])


def wait_until_still(pids: Sequence[int]) -> None:
    """Wait until none of those that were sent SIGSTOP moves.

    One that runs on another core goes on for a moment after it was sent.
    """
    wait_for(lambda: all(_is_still(pid) for pid in pids), FROZEN_SECONDS, f"{pids} to stand still")


def _is_still(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() in _STILL
    except psutil.NoSuchProcess:
        return True
