"""Whether a task's id can have been used before."""

from __future__ import annotations

import re

__all__ = ["looks_used_once"]

#: A random UUID as it is written (RFC 9562, version 4).
_RANDOM = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def looks_used_once(task_id: str) -> bool:
    """Whether an id has the form that Celery makes (a random UUID), for one task only."""
    return _RANDOM.fullmatch(task_id) is not None
