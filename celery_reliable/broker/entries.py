"""What is in an unacked hash: a delivery's entry, read from its hash."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, replace
from typing import Any

from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from celery_reliable.message import RETURNS, returns_of, task_id_of

__all__ = ["Entry", "entry_of", "quoted", "unquoted"]


@dataclass(frozen=True)
class Entry:
    """One delivery in an unacked hash.  *payload* is None if it is not a message of kombu's."""

    tag: str
    queue: str
    raw: bytes
    payload: dict[str, Any] | None
    #: When the message was filed, in ms by the clock of its worker.
    filed_ms: int

    @property
    def task_id(self) -> str:
        """The task's id; empty for what has none."""
        return task_id_of(self.payload or {})

    @property
    def task_name(self) -> str:
        """The task's name; empty where the headers do not tell."""
        return str(((self.payload or {}).get("headers") or {}).get("task") or "")

    @property
    def returns(self) -> int:
        """How often the message came back from a dead worker, as far as that was counted."""
        return returns_of(self.payload or {})

    def without_body(self) -> Entry:
        """Return this without the bytes and the body of the message, which may be large."""
        payload = self.payload
        if payload is not None:
            payload = {name: value for name, value in payload.items() if name != "body"}
        return replace(self, raw=b"", payload=payload)

    def redelivered(self, *, returns: int | None) -> bytes:
        """Return the message to be put back into its queue: redelivered, under a new tag.

        *returns*: how often it has come back by now; None leaves its count as it is.
        """
        if self.payload is None:
            return self.raw
        properties = self.payload.setdefault("properties", {})
        properties["delivery_tag"] = str(uuid.uuid4())
        properties.setdefault("delivery_info", {})["redelivered"] = True
        if returns is not None:
            properties[RETURNS] = returns
        return str(dumps(self.payload)).encode()


def quoted(queue: str) -> str:
    """Return a queue's name with line breaks escaped, as an entry has it in its first line."""
    return queue.replace("\\", "\\\\").replace("\n", "\\n")


def unquoted(name: str) -> str:
    """Return the name that was quoted."""
    if "\\" not in name:
        return name
    return re.sub(r"\\([\\n])", lambda found: "\n" if found[1] == "n" else "\\", name)


def entry_of(tag: str, value: Any) -> Entry:
    """Read what an unacked hash holds under a tag."""
    head, _, raw = value.partition(b"\n")
    filed_ms, _, queue = head.partition(b" ")
    try:
        payload = loads(bytes_to_str(raw))
        properties = payload["properties"]
        is_message = isinstance(properties.get("delivery_info", {}), dict)
    except Exception:
        # Decoding may raise anything, and one unreadable message must not hide the others.
        is_message = False
    if not is_message:
        payload = None
    return Entry(tag, unquoted(bytes_to_str(queue)), raw, payload, int(filed_ms))
