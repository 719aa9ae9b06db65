"""A message as kombu's virtual transports keep it in a list: a payload, its body not decoded."""

from __future__ import annotations

import json
from typing import Any

from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads

from celery_reliable.message.task_ids import id_as_text

__all__ = ["RETURNS", "headers_as_written", "payload_of", "returns_of", "task_id_of"]

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
    _check_shape(payload)
    headers = payload.get("headers") or {}
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


def _check_shape(message: Any) -> None:
    """Raise ValueError for what kombu would choke on later, in the worker's main loop."""
    properties = message["properties"]
    delivery = properties["delivery_info"]
    is_message = (
        isinstance(properties, dict)
        and isinstance(delivery["exchange"], str)
        and isinstance(delivery["routing_key"], str)
        and isinstance(message["body"], str)
        and isinstance(message.get("headers") or {}, dict)
    )
    # Celery uses it as a key, so it must be hashable.
    told = (message.get("headers") or {}) if is_message else {}
    if not is_message or not isinstance(told.get("task", ""), str):
        raise ValueError("a list element that is no message of kombu's")
