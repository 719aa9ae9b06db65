"""Which end of what a server was given it loses: measured, and no more than a server may lose.

What is to be lost may take longer than it should on a machine that is busy.  So the server stands
still while it is looked how long it was, and goes on if that was too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import redis

from proof.soak.patience import patiently
from tests.support.waiting import wait_for

__all__ = ["LONGEST_SECONDS", "TRIES", "Lost", "Safe", "earliest", "safe_moments"]

#: What `appendfsync everysec` may lose.
LONGEST_SECONDS = 2.0
#: After so many tries what is lost may be longer; the log tells how long.
TRIES = 10
_BACK_SECONDS = 60.0


@dataclass(frozen=True)
class Safe:
    """A moment, by the log's clock, and how long the file was when all that had been answered by
    then was written.
    """

    at: float
    size: int


@dataclass(frozen=True)
class Lost:
    """What was written within this time may be gone; so many bytes are."""

    since: float
    until: float
    size: int


def earliest(moments: Sequence[Safe], ended: float) -> Safe | None:
    """The earliest of them from which not too much is lost; None when there is none."""
    fit = (one for one in moments if ended - one.at <= LONGEST_SECONDS)
    return min(fit, key=lambda one: one.at, default=None)


def safe_moments(
    client: redis.Redis, now: Callable[[], float], seconds: float
) -> tuple[list[Safe], int]:
    """Look from one safe moment on, for so many seconds; return those that there were, and how long
    the file was at last.
    """
    found: list[Safe] = []
    size = 0

    def is_over() -> bool:
        nonlocal size
        at = now()
        info = patiently(lambda: client.info("persistence"))
        size = int(info["aof_current_size"])
        if not info["aof_buffer_length"] and info["aof_last_write_status"] == "ok":
            found.append(Safe(at, size))
        return bool(found) and now() >= found[0].at + seconds

    wait_for(is_over, _BACK_SECONDS + seconds, "a moment without a backlog")
    return found, size
