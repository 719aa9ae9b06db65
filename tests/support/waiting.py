"""Waiting for something to become true, never for time to pass."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from celery.result import AsyncResult

T = TypeVar("T")

POLL_SECONDS = 0.025


def wait_for(condition: Callable[[], T], timeout_seconds: float, what: str) -> T:
    """Call `condition` until its answer is true and return that answer.

    Raises AssertionError, with `what` and the last answer, when `timeout_seconds` have gone by.
    The condition is asked once more after the deadline, so that a slow poll is not a failure.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        is_last = time.monotonic() >= deadline
        value = condition()
        if value:
            return value
        if is_last:
            raise AssertionError(
                f"waited {timeout_seconds:g} s in vain for {what}; last seen: {value!r}"
            )
        time.sleep(POLL_SECONDS)


def listens(port: int) -> bool:
    """Whether somebody takes connections at this port of the loopback interface."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def stored(result: AsyncResult[Any], timeout_seconds: float) -> Any:
    """Return what a task returned, by asking for it.

    For what ends after a restart of Redis: Celery's client asks for what is stored before it
    subscribes anew, and so `get` may wait for a message that came in between.
    """
    wait_for(result.ready, timeout_seconds, f"the result of {result.id}")
    return result.get(timeout=timeout_seconds)
