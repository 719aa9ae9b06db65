"""Pages of what may be long, and how the next one is found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import quote, unquote

from celery_reliable.operations.operation import BadParameter

__all__ = ["Page", "Position"]

T = TypeVar("T")


@dataclass(frozen=True)
class Position:
    """A place between two entries, by the one that came before it: that may be gone meanwhile."""

    ms: int
    id: str

    @property
    def cursor(self) -> str:
        """The place as a text without spaces, for URLs and command lines; it means nothing to
        anybody.
        """
        return f"{self.ms}:{quote(self.id, safe='', errors='surrogatepass')}"

    @classmethod
    def of(cls, cursor: str) -> Position | None:
        """Return the place that a cursor is of; None for an empty one.  Raises BadParameter."""
        if not cursor:
            return None
        try:
            ms, id_ = cursor.split(":", 1)
            return cls(int(ms), unquote(id_, errors="surrogatepass"))
        except ValueError as exc:
            raise BadParameter(
                "cursor",
                f"{cursor[:50]!r} is no cursor: pass on the one that the page before has given, or "
                "none, for the first page.",
            ) from exc


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some of a list.

    A page looks at so many entries at the most.  So with a filter it may be short, or empty, while
    there are more: go on with its cursor until ``is_last``.  What comes and goes meanwhile moves
    nothing else: an entry that is there all the time is on one page.
    """

    items: tuple[T, ...]
    #: For the next page; empty on the last.
    cursor: str
    #: How many entries were looked at.
    looked_at: int
    #: Whether nothing follows: there is no cursor.
    is_last: bool
