"""Pages of what may be long, how the next one is found, and the walk through tasks that live."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote

from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger, Look
from celery_reliable.model import State

__all__ = ["BadCursor", "Kind", "Page", "Position", "TaskWalk", "Walk", "gathered"]

T = TypeVar("T")
P = TypeVar("P", bound="Page[Any]")

#: Records looked at in one walk: a tenth of a second or two.
_MOST = 1_000
#: Before all times: what runs comes first, by its id.
_RUNNING_MS = -1


class BadCursor(ReliableError, ValueError):
    """This cursor is none that a page has given."""


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
        """Return the place that a cursor is of; None for an empty one.  Raises BadCursor."""
        if not cursor:
            return None
        ms, colon, id_ = cursor.partition(":")
        try:
            if not colon:
                raise ValueError("no colon")
            return cls(int(ms), unquote(id_, errors="surrogatepass"))
        except ValueError as exc:
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


class Kind(str, Enum):
    """What a list of tasks is of."""

    QUEUED = "queued"
    PARKED = "parked"
    RUNNING = "running"
    WAITING = "waiting"
    #: Dead letters of which Celery has not been told yet.
    OWED = "owed"
    DEAD = "dead"

    def is_of(self, look: Look) -> bool:
        """Whether a record is of this kind."""
        if self is Kind.OWED:
            return look.record.state is State.DEAD and look.record.is_owed
        return look.record.state == State(self.value)


class Walk(Generic[T]):
    """Yields the entries of an index that fit, of which few are in memory at a time.

    After each, ``place`` is where the walk goes on, whatever comes and goes meanwhile, and
    ``before`` is where one goes on that is to yield it again.

    Args:
        place: where to begin.
        most: how many entries to look at, whether they fit or not; None: all.
        deadline: by `time.monotonic`; nothing is read after it, but once.
        first: entries read in the first round trip; in the next ones twice as many as before.
        at_once: entries read in one round trip at the most.
    """

    def __init__(
        self,
        place: Position | None,
        most: int | None,
        deadline: float | None = None,
        *,
        first: int = 64,
        at_once: int = 512,
    ) -> None:
        self.place = self.before = place
        self.looked_at = 0
        self.is_over = False
        self._most = most
        self._deadline = deadline
        self._size, self._at_once = first, at_once

    def _entries(self, place: tuple[int, str] | None, limit: int) -> list[tuple[str, int]]:
        """Return ids and their ms, at most *limit* that follow a place."""
        raise NotImplementedError

    def _light(self, entries: list[tuple[str, int]]) -> list[T | None]:
        """Return what can be read of all of them at once; None of those that do not fit by that."""
        raise NotImplementedError

    def _whole(self, found: list[T]) -> Iterator[T | None]:
        """Yield what is yielded of those that fit so far; None of those that do not fit."""
        yield from found

    def __iter__(self) -> Iterator[T]:
        while self._may_read():
            limit, self._size = self._size, min(2 * self._size, self._at_once)
            if self._most is not None:
                limit = min(limit, self._most - self.looked_at)
            place = None if self.place is None else (self.place.ms, self.place.id)
            entries = self._entries(place, limit)
            light = self._light(entries)
            whole = self._whole([one for one in light if one is not None])
            for (task_id, ms), one in zip(entries, light, strict=True):
                self.looked_at += 1
                self.before, self.place = self.place, Position(ms, task_id)
                if one is not None and (found := next(whole)) is not None:
                    yield found
            if len(entries) < limit:
                self.is_over = True
                return

    @property
    def cursor(self) -> str:
        """Leads to what follows; empty when nothing does."""
        return "" if self.is_over or self.place is None else self.place.cursor

    def _may_read(self) -> bool:
        if self._deadline is not None and self.looked_at and time.monotonic() > self._deadline:
            return False
        return self._most is None or self.looked_at < self._most


class TaskWalk(Walk[Look]):
    """Yields what runs, by id, and then what somebody must look at, by the time of that; or dead
    letters, the oldest first.

    Args:
        fits: what is wanted, by what a record tells without its message; None: all.
        most_bytes: yield them with their messages, of which so much is in memory at a time; None:
            without.
    """

    def __init__(
        self,
        ledger: Ledger,
        kind: Kind | None,
        cursor: str,
        most: int = _MOST,
        *,
        fits: Callable[[Look], bool] | None = None,
        most_bytes: int | None = None,
    ) -> None:
        super().__init__(Position.of(cursor), most)
        self._ledger = ledger
        self._kind = kind
        self._fits = fits
        self._most_bytes = most_bytes

    def _entries(self, place: tuple[int, str] | None, limit: int) -> list[tuple[str, int]]:
        if self._kind is Kind.DEAD:
            return self._ledger.letters_after(place, limit)
        found: list[tuple[str, int]] = []
        if place is None or place[0] == _RUNNING_MS:
            if self._kind in (None, Kind.RUNNING):
                ids = sorted({one for look in self._ledger.worker_looks() for one in look.claims})
                ids = [one for one in ids if place is None or one > place[1]]
                found = [(one, _RUNNING_MS) for one in ids[:limit]]
            place = None
        if self._kind is Kind.RUNNING or len(found) == limit:
            return found
        return found + self._ledger.due_after(place, limit - len(found))

    def _light(self, entries: list[tuple[str, int]]) -> list[Look | None]:
        looks = self._ledger.look_all([task_id for task_id, _ in entries])
        return [
            one if one is not None and self._is_meant(one, ms) else None
            for (_, ms), one in zip(entries, looks, strict=True)
        ]

    def _is_meant(self, look: Look, ms: int) -> bool:
        kind, is_running = self._kind, look.record.state is State.RUNNING
        if ms == _RUNNING_MS:
            is_of = is_running
        else:
            # What runs with a limit came before.
            is_of = not is_running and (kind in (None, Kind.DEAD) or kind.is_of(look))
        return is_of and (self._fits is None or self._fits(look))

    def _whole(self, found: list[Look]) -> Iterator[Look | None]:
        if self._most_bytes is None:
            yield from found
            return
        ids = [look.record.task_id for look in found]
        messages = self._ledger.find_in_groups(ids, most_bytes=self._most_bytes)
        for look, one in zip(found, messages, strict=True):
            record = one.record if one.is_readable else None
            yield look if record is None else replace(look, record=record)
