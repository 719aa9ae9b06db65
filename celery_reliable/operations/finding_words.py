"""Words that findings share."""

from __future__ import annotations

__all__ = ["PREFIX", "counted", "listed"]

#: Before the name of each finding.
PREFIX = "celery_reliable."
_MOST_NAMED = 5


def listed(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return "1 task", "2 tasks"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
