"""Pages of what may be long, and how the next one is found."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote

from celery_reliable.operations.operation import BadParameter

__all__ = ["Page", "Position", "gathered"]

T = TypeVar("T")
P = TypeVar("P", bound="Page[Any]")


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
        ms, colon, id_ = cursor.partition(":")
        try:
            if not colon:
                raise ValueError("no colon")
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
    is_last: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_last", not self.cursor)


def gathered(read: Callable[[str, int], P], cursor: str, limit: int, seconds: float) -> P:
    """Read page after page, each by its cursor and how many are wanted yet, until there are *limit*
    items, nothing follows, or *seconds* are over: with a filter one page may be short.
    """
    until = time.monotonic() + seconds
    found: list[Any] = []
    looked_at = 0
    while True:
        page = read(cursor, limit - len(found))
        found += page.items
        looked_at, cursor = looked_at + page.looked_at, page.cursor
        if page.is_last or len(found) >= limit or time.monotonic() > until:
            return replace(page, items=tuple(found), looked_at=looked_at)
