"""Ids of tasks: as text, and whether one can have been used before."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

__all__ = ["id_as_text", "looks_used_once"]

#: A random UUID as it is written (RFC 9562, version 4).
_RANDOM = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def looks_used_once(task_id: str) -> bool:
    """Whether an id has the form that Celery makes (a random UUID), for one task only."""
    return _RANDOM.fullmatch(task_id) is not None


def id_as_text(task_id: Any) -> str:
    """Return an id as its message and its record have it, where Celery accepts what is no text.

    Raises TypeError for what is no text, no UUID and no bytes of a text.
    """
    if type(task_id) is str:
        return task_id
    if isinstance(task_id, str):
        # An enum's own text is its name, and JSON has its value.
        return str.__str__(task_id)
    if isinstance(task_id, UUID):
        return str(task_id)
    if isinstance(task_id, bytes):
        try:
            return task_id.decode()
        except UnicodeDecodeError:
            pass
    raise TypeError(f"task_id={task_id!r}: the id of a task is a text or a UUID")
