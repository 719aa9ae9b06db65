"""Whether a task's id can have been used before."""

from __future__ import annotations

from uuid import UUID

__all__ = ["looks_used_once"]


def looks_used_once(task_id: str) -> bool:
    """Whether an id has the form that Celery makes (a random UUID), for one task only."""
    try:
        found = UUID(task_id)
    except ValueError:
        return False
    return found.version == 4 and str(found) == task_id
