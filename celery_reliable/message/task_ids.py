"""What the text of a task's id tells."""

from __future__ import annotations

from uuid import UUID

__all__ = ["looks_used_once"]


def looks_used_once(task_id: str) -> bool:
    """Whether an id is one that Celery makes, for one task and no other."""
    try:
        found = UUID(task_id)
    except ValueError:
        return False
    return found.version == 4 and str(found) == task_id
