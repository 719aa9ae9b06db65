"""Pages of what may be long, how the next one is found, and the walk through tasks that live."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Ledger, Look
from celery_reliable.model import State

__all__ = ["BadCursor", "Kind", "Page", "Position", "Walk", "gathered"]

T = TypeVar("T")

#: Of an id; a longer one is of nobody's page.
_LONGEST = 10_000
#: Records read in one round trip: few at first, as a page may be full with them.
_FIRST, _AT_ONCE = 64, 512
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
    #: Whether nothing follows.
    is_last: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_last", not self.cursor)


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


class Walk:
    """Yields what is looked at: what runs, by id, and then what somebody must look at, by the time
    of that; or dead letters, the oldest first.

    After each, `cursor` leads to what follows, whatever has come and gone meanwhile.  Ends after
    so many, found or not.
    """

    def __init__(self, ledger: Ledger, kind: Kind | None, cursor: str, most: int = _MOST) -> None:
        self._ledger = ledger
        self._kind = kind
        self._place = Position.of(cursor)
        self._most = most
        self.looked_at = 0
        self.is_over = False

    def __iter__(self) -> Iterator[Look]:
        kind = self._kind
        if kind is Kind.DEAD:
            yield from self._index(self._ledger.dead_after)
            return
        if kind in (None, Kind.RUNNING) and (self._place is None or self._place.ms == _RUNNING_MS):
            yield from self._running()
            if self.looked_at >= self._most:
                return
            self._place = None
        if kind is Kind.RUNNING:
            self.is_over = True
            return
        for look in self._index(self._ledger.due_after):
            # What runs with a limit came before.
            if look.record.state is not State.RUNNING and (kind is None or kind.is_of(look)):
                yield look

    @property
    def cursor(self) -> str:
        """Leads to what follows; empty when nothing does."""
        return "" if self.is_over or self._place is None else self._place.cursor

    def _running(self) -> Iterator[Look]:
        ids = sorted({one for look in self._ledger.worker_looks() for one in look.claims})
        if self._place is not None:
            ids = [one for one in ids if one > self._place.id]
        for start in range(0, min(len(ids), self._most), _AT_ONCE):
            batch = ids[start : start + _AT_ONCE]
            for task_id, look in zip(batch, self._ledger.look_all(batch), strict=True):
                self.looked_at += 1
                self._place = Position(_RUNNING_MS, task_id)
                if look is not None and look.record.state is State.RUNNING:
                    yield look

    def _index(
        self, read: Callable[[tuple[int, str] | None, int], list[tuple[str, int]]]
    ) -> Iterator[Look]:
        size = _FIRST
        while (left := self._most - self.looked_at) > 0:
            place = None if self._place is None else (self._place.ms, self._place.id)
            wanted, size = min(left, size), min(2 * size, _AT_ONCE)
            entries = read(place, wanted)
            looks = self._ledger.look_all([task_id for task_id, _ in entries])
            for (task_id, ms), look in zip(entries, looks, strict=True):
                self.looked_at += 1
                self._place = Position(ms, task_id)
                if look is not None:
                    yield look
            if len(entries) < wanted:
                self.is_over = True
                return
