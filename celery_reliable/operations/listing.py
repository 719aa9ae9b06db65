"""Lists of tasks and dead letters: the filters that say which an operator means, and the walk
through those that live, or through dead letters, page by page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from fnmatch import fnmatchcase
from operator import eq, ge, le
from typing import Annotated, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from celery_reliable.leases import matches, nodename_of
from celery_reliable.ledger import Ledger, Look
from celery_reliable.model import Reason, State
from celery_reliable.operations.messages import envelope_of, queue_of
from celery_reliable.operations.operation import BadParameter, Param, duration
from celery_reliable.recovery import MOST_BYTES

__all__ = [
    "EVERYTHING",
    "OF_GROUPS",
    "OF_LIVING",
    "Filter",
    "Kind",
    "Page",
    "Position",
    "Subject",
    "Walk",
]

#: Parts of a filter that fit all letters of a group, or none.
OF_GROUPS = ("task", "reason", "exception")
#: Parts that are offered for tasks that live.
OF_LIVING = ("task", "queue", "worker", "older_than_seconds")

T = TypeVar("T")

#: For so long one page looks for what fits; then it says where it goes on.
_LOOK_SECONDS = 2.0
#: Of messages, in one page.
_MOST_BYTES_OF_A_PAGE = 8 * MOST_BYTES
#: Before all times: what runs comes first, by its id.
_RUNNING_MS = -1
#: Records read in the first round trip, and at the most in one: each reads twice as many as before.
_FIRST, _AT_ONCE = 64, 512


@dataclass(frozen=True)
class Subject:
    """What a filter looks at, of a task that lives, of a dead letter, or of a group of these.  None
    is not known, and fits.
    """

    name: str
    #: Why it was buried; empty for a task that lives.
    reason: str | None = None
    #: Type and text, as a letter has them: "ValueError: no such customer".
    exception: str | None = None
    queue: str | None = None
    #: Those that ran it, or run it.
    workers: tuple[str, ...] | None = None
    #: When it was buried, or published; the server's ms.
    at_ms: int | None = None


@dataclass(frozen=True)
class Filter:
    """All that is given has to fit; a filter of nothing fits everything.

    ``task``, ``queue``, ``exception`` (its type) and ``worker`` may be patterns as the shell has
    them (``billing.*``); a worker is named with or without its host.  No part looks into arguments.
    Ages are seconds since the burial, or since the publication of a task that
    lives.
    """

    task: Annotated[
        str | None,
        Param("The task's name, or a shell pattern: 'billing.*'."),
    ] = None
    queue: Annotated[
        str | None,
        Param("The queue that the message was sent to, or a pattern."),
    ] = None
    reason: Annotated[
        str | None,
        Param("Why the task became a dead letter.", choices=tuple(one.value for one in Reason)),
    ] = None
    exception: Annotated[str | None, Param("The type of the exception, or a pattern.")] = None
    worker: Annotated[
        str | None,
        Param("A worker that ran the task, or a pattern; the host may be left out."),
    ] = None
    older_than_seconds: Annotated[float | None, duration("The least age.")] = None
    newer_than_seconds: Annotated[float | None, duration("The greatest age.")] = None

    def matches(self, subject: Subject, now_ms: int = 0) -> bool:
        """Whether *subject* fits, at the ledger's time *now_ms*."""
        age_seconds = None if subject.at_ms is None else (now_ms - subject.at_ms) / 1000
        parts: tuple[tuple[Any, Any, Callable[[Any, Any], bool]], ...] = (
            (self.task, subject.name, fnmatchcase),
            (self.queue, subject.queue, fnmatchcase),
            (self.reason, subject.reason, eq),
            (self.exception, subject.exception, _is_of_type),
            (self.worker, subject.workers, _has_worker),
            (self.older_than_seconds, age_seconds, ge),
            (self.newer_than_seconds, age_seconds, le),
        )
        return all(None in (wanted, found) or fits(found, wanted) for wanted, found, fits in parts)

    @property
    def given(self) -> dict[str, str | float]:
        """What is asked for, by its name; empty when everything fits."""
        return {
            one.name: value
            for one in fields(self)
            if (value := getattr(self, one.name)) is not None
        }


def _is_of_type(exception: str, pattern: str) -> bool:
    return fnmatchcase(exception.partition(":")[0].strip(), pattern)


def _has_worker(workers: Sequence[str], pattern: str) -> bool:
    # By its name, or by the whole id that tells one start of it from another.
    return any(matches(pattern, nodename_of(one)) or fnmatchcase(one, pattern) for one in workers)


#: The filter of nothing.
EVERYTHING = Filter()


class Position(NamedTuple):
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

    A page looks for two seconds at the most.  So with a filter it may be short, or empty, while
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


class Kind(str, Enum):
    """What a list of tasks is of."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    #: Dead letters of which Celery has not been told yet.
    OWED = "owed"
    DEAD = "dead"


@dataclass
class Walk:
    """Yields what runs, by id, and then what somebody must look at, by the time of that; or dead
    letters by the time of their burial.  Few are in memory at a time.

    After each, ``place`` is where the walk goes on, whatever comes and goes meanwhile, and
    ``before`` is where one goes on that is to yield it again.

    Attributes:
        ledger: where they are.
        wanted: those that fit.
        now_ms: the ledger's time, from which ages are reckoned.
        kind: only these; None: all but dead letters.
        group: of dead letters only those of this group, by its id; empty: of all.
        is_latest_first: of dead letters; else the oldest.
        until_ms: no letter that was buried later.
        place: where to begin.
        deadline: by `time.monotonic`; nothing is read after it, but once.
        looked_at: how many were.
        is_over: nothing follows.
    """

    ledger: Ledger
    wanted: Filter = EVERYTHING
    now_ms: int = 0
    kind: Kind | None = None
    group: str = ""
    is_latest_first: bool = False
    until_ms: int | None = None
    place: Position | None = None
    deadline: float | None = None
    before: Position | None = field(default=None, init=False)
    looked_at: int = field(default=0, init=False)
    is_over: bool = field(default=False, init=False)
    _n_bytes: int = field(default=0, init=False)

    def __iter__(self) -> Iterator[Look]:
        size = _FIRST
        while not (self.deadline and self.looked_at and time.monotonic() > self.deadline):
            limit, size = size, min(2 * size, _AT_ONCE)
            entries = self._entries(limit)
            looks = self._fitting(entries)
            ids = [one.record.task_id for one in looks if one is not None]
            whole = self.ledger.looks_in_groups(ids, most_bytes=MOST_BYTES)
            for (task_id, ms), look in zip(entries, looks, strict=True):
                self.looked_at += 1
                self.before, self.place = self.place, Position(ms, task_id)
                found = None if look is None else next(whole)
                # A letter may have been replayed, and buried again, since.
                if found is None or (self.kind is Kind.DEAD and not self._is_meant(found, ms)):
                    continue
                self._n_bytes += len(found.record.message)
                if self._fits(found, is_whole=True):
                    yield found
            if len(entries) < limit:
                self.is_over = True
                return

    @property
    def cursor(self) -> str:
        """Leads to what follows; empty when nothing does."""
        return "" if self.is_over or self.place is None else self.place.cursor

    def page(self, limit: int, view: Callable[[Look], T | None]) -> Page[T]:
        """Return at most *limit* views of what there is time for, without those that are None."""
        self.deadline = time.monotonic() + _LOOK_SECONDS
        found: list[T] = []
        for look in self:
            if (one := view(look)) is not None:
                found.append(one)
            if len(found) >= limit or self._n_bytes > _MOST_BYTES_OF_A_PAGE:
                break
        return Page(tuple(found), self.cursor, self.looked_at, not self.cursor)

    def _entries(self, limit: int) -> list[tuple[str, int]]:
        """Return ids and their ms, at most *limit* that follow the place."""
        ledger, place = self.ledger, self.place
        if self.kind is Kind.DEAD:
            order: dict[str, Any] = {
                "is_latest_first": self.is_latest_first,
                "until_ms": self.until_ms,
            }
            if self.group:
                return ledger.groups.letters_of(self.group, place, limit, **order)
            return ledger.letters_after(place, limit, **order)
        found: list[tuple[str, int]] = []
        if place is None or place.ms == _RUNNING_MS:
            if self.kind in (None, Kind.RUNNING):
                ids = sorted({one for look in ledger.worker_looks() for one in look.claims})
                ids = [one for one in ids if place is None or one > place.id]
                found = [(one, _RUNNING_MS) for one in ids[:limit]]
            place = None
        if self.kind is Kind.RUNNING or len(found) == limit:
            return found
        return found + ledger.due_after(place, limit - len(found))

    def _fitting(self, entries: Sequence[tuple[str, int]]) -> list[Look | None]:
        """Return what fits as far as records tell without their messages; None of the others."""
        looks = self.ledger.look_all([task_id for task_id, _ in entries])
        return [
            look if look and self._is_meant(look, ms) and self._fits(look) else None
            for (_, ms), look in zip(entries, looks, strict=True)
        ]

    def _is_meant(self, look: Look, ms: int) -> bool:
        """Whether it is of the kind, and of the group."""
        kind, state = self.kind, look.record.state
        if kind is Kind.DEAD:
            letter = look.letter
            if letter is None or letter.buried_ms != ms:
                return False
            return self.group in ("", letter.group.id)
        if (state is State.RUNNING) != (ms == _RUNNING_MS):
            # What runs with a limit came before.
            return False
        if kind is Kind.OWED:
            return state is State.DEAD and look.record.is_owed
        return kind is None or kind.value == state.value

    def _fits(self, look: Look, *, is_whole: bool = False) -> bool:
        """Whether it fits; *is_whole*: its message was read, too."""
        record, letter = look.record, look.letter
        ran = [record.owner, *(one.owner for one in look.history if one.what != "replayed")]
        subject = Subject(
            record.name,
            letter.reason.value if letter else "",
            letter.exception if letter else "",
            workers=tuple(filter(None, ran)),
            at_ms=letter.buried_ms if letter else record.published_ms,
        )
        if is_whole:
            subject = replace(subject, queue=queue_of(envelope_of(record)))
        return self.wanted.matches(subject, self.now_ms)
