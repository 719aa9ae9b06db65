"""A message as kombu's virtual transports keep it in a list: a payload, its body not decoded."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any
from uuid import UUID

from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

__all__ = [
    "RETURNS",
    "check_delivered",
    "check_limits",
    "headers_as_written",
    "id_as_text",
    "looks_used_once",
    "payload_of",
    "returns_of",
    "task_id_of",
]

#: A random UUID as it is written (RFC 9562, version 4).
_RANDOM = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def looks_used_once(task_id: str) -> bool:
    """Whether an id has the form that Celery makes (a random UUID), for one task only."""
    return _RANDOM.fullmatch(task_id) is not None


def id_as_text(task_id: Any) -> str:
    """Return an id as its message and its record have it, where Celery accepts what is no text.

    Raises TypeError for what is no text, no UUID and no bytes of a text.
    """
    if isinstance(task_id, str):
        # An enum's own text is its name, and JSON has its value.
        return str.__str__(task_id)
    if isinstance(task_id, UUID):
        return str(task_id)
    if isinstance(task_id, bytes):
        with suppress(UnicodeDecodeError):
            return task_id.decode()
    raise TypeError(f"task_id={task_id!r}: the id of a task is a text or a UUID")


#: The property of a message that came back from a dead worker.  It is 1, plus one for each death
#: that was charged to the message while no record counted that.
RETURNS = "reliable_returns"


def returns_of(payload: dict[str, Any]) -> int:
    """Return how often a message came back from a dead worker, as far as that was counted."""
    count = (payload.get("properties") or {}).get(RETURNS, 0)
    # Who counts down from somewhere would be returned without end.
    return count if type(count) is int and count > 0 else 0


def task_id_of(payload: dict[str, Any]) -> str:
    """Return the id of the task of a message; empty for what has none."""
    # Messages of Celery's protocol 1 have no headers; both have the id in the properties.
    properties = payload.get("properties") or {}
    return str((payload.get("headers") or {}).get("id") or properties.get("correlation_id") or "")


def payload_of(raw: bytes) -> Any:
    """Decode a list element.  Raises what decoding raises, and ValueError, KeyError or TypeError if
    it is not a message of kombu's.
    """
    payload = loads(bytes_to_str(raw))
    properties, headers = payload["properties"], payload.get("headers") or {}
    delivery = properties["delivery_info"]
    # Kombu would choke on anything else later, in the worker's main loop.  Celery uses the name of
    # the task as a key, so it must be hashable.
    if not (
        isinstance(properties, dict)
        and isinstance(delivery["exchange"], str)
        and isinstance(delivery["routing_key"], str)
        and isinstance(payload["body"], str)
        and isinstance(headers, dict)
        and isinstance(headers.get("task", ""), str)
    ):
        raise ValueError("a list element that is no message of kombu's")
    if "id" in headers:
        # A publisher without the package may send a UUID, which kombu writes and reads as one.
        headers["id"] = id_as_text(headers["id"])
    return payload


def headers_as_written(raw: bytes) -> dict[str, Any]:
    """Return the headers of a list element that `payload_of` cannot read, as plain JSON has them;
    none where that has none.
    """
    try:
        headers = json.loads(raw)["headers"]
    except Exception:
        # Whatever decoding raises.
        return {}
    return headers if isinstance(headers, dict) else {}


def check_limits(limits: Any) -> None:
    """Raise ValueError for time limits that would end the worker."""
    if limits is not None and not (
        isinstance(limits, (list, tuple))
        and len(limits) == 2
        # A bool is an int in Python; here it is a mistake.
        and all(type(one) in (int, float, type(None)) for one in limits)
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
