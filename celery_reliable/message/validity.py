"""Messages that would end the worker which hands them to its pool."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery_reliable.message.task_ids import id_as_text

__all__ = ["check_delivered", "check_limits"]


def check_limits(limits: Any) -> None:
    """Raise ValueError for time limits that would end the worker."""
    if limits is not None and not (
        isinstance(limits, (list, tuple))
        and len(limits) == 2
        and all(one is None or isinstance(one, (int, float)) for one in limits)
        and not any(isinstance(one, bool) for one in limits)
    ):
        raise ValueError(f"timelimit is {limits!r}: two numbers of seconds, or null for none")


def check_delivered(message: Any) -> None:
    """Raise ValueError for a task's message that would end the worker as it hands it to its pool,
    or that would fail in the pool's process before the task begins.

    An id that is no text, but has one, becomes that text.  Raises TypeError if it has none.
    """
    headers = message.headers
    if not isinstance(headers, dict) or "task" not in headers:
        return
    if isinstance(headers.get("id"), (UUID, bytes)):
        headers["id"] = id_as_text(headers["id"])
    check_limits(headers.get("timelimit"))
    try:
        payload = message.payload
    except Exception:
        # The consumer reports what it cannot decode.
        return
    # A mapping is a body of protocol 1.
    if isinstance(payload, (list, tuple)) and not (
        len(payload) == 3
        and isinstance(payload[0], (list, tuple))
        and isinstance(payload[1], dict)
        and isinstance(payload[2], (dict, type(None)))
    ):
        raise ValueError("the body is no list of arguments, keyword arguments and options")
