"""Messages as producers of other makes put them into a queue."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import uuid4


def element(body: bytes = b"[[0.01], {}, {}]", **changes: Any) -> bytes:
    """A list element as kombu writes it, of a message that is not quite right."""
    message: dict[str, Any] = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {"task": "project.work", "id": str(uuid4()), "lang": "py"},
        "properties": {
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "delivery_tag": str(uuid4()),
            "correlation_id": None,
        },
    }
    for name, value in changes.items():
        if name in ("headers", "properties"):
            message[name] = {**message[name], **value} if value else value
        else:
            message[name.replace("_", "-")] = value
    return json.dumps(message).encode()
