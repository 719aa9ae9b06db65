"""Pages of what may be long, and how the next one is found."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from celery_reliable.exceptions import ReliableError

__all__ = ["BadCursor", "Page", "Position", "gathered"]

T = TypeVar("T")
V = TypeVar("V")

#: Of an id; a longer one is of nobody's page.
_LONGEST = 10_000


class BadCursor(ReliableError, ValueError):
    """This cursor is none that a page has given."""


@dataclass(frozen=True)
class Position:
    """A place between two entries, by the one that came before it: that may be gone meanwhile."""

    ms: int
    id: str

    @property
    def cursor(self) -> str:
        """The place as a short text, for URLs and command lines; it means nothing to anybody."""
        raw = f"{self.ms}:{self.id}".encode("utf-8", "surrogatepass")
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def of(cls, cursor: str) -> Position | None:
        """Return the place that a cursor is of; None for an empty one.  Raises BadCursor."""
        if not cursor:
            return None
        try:
            if len(cursor) > _LONGEST:
                raise ValueError("too long")
            padded = cursor + "=" * (-len(cursor) % 4)
            raw = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
            ms, colon, id_ = raw.decode("utf-8", "surrogatepass").partition(":")
            if not colon:
                raise ValueError("no colon")
            return cls(int(ms), id_)
        except (ValueError, binascii.Error) as exc:
            raise BadCursor(
                f"{cursor[:50]!r} is no cursor: pass on the one that the page before has given, or "
                "none, for the first page."
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

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        return not self.cursor

    def view(self, of: Callable[[T], V]) -> dict[str, object]:
        """Return the page as plain values, each item as *of* shows it."""
        return {
            "items": [of(one) for one in self.items],
            "cursor": self.cursor,
            "looked_at": self.looked_at,
            "is_last": self.is_last,
        }


def gathered(
    read: Callable[[str, int], Page[T]], cursor: str, limit: int, seconds: float
) -> Page[T]:
    """Read page after page, each by its cursor and how many are wanted yet, until there are *limit*
    items, nothing follows, or *seconds* are over: with a filter one page may be short.
    """
    until = time.monotonic() + seconds
    found: list[T] = []
    looked_at = 0
    while True:
        page = read(cursor, limit - len(found))
        found += page.items
        looked_at, cursor = looked_at + page.looked_at, page.cursor
        if page.is_last or len(found) >= limit or time.monotonic() > until:
            return Page(tuple(found), cursor, looked_at)
