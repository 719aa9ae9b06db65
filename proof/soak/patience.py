"""Asks a server that may just have been started again, or be busy: until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import redis

__all__ = ["patiently"]

T = TypeVar("T")

_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


def patiently(ask: Callable[[], T], seconds: float = _SECONDS) -> T:
    """Return what *ask* returns.  It is asked again while the server is away, does not answer or
    loads its data, for so many seconds; then its error is raised, as any other is at once.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        # A server that loads its data is one of the first.
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            if time.monotonic() >= until:
                raise
        time.sleep(_PAUSE_SECONDS)
