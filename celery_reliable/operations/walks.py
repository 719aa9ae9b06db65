"""The walk through tasks: those that live, or dead letters; all, or those that fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

from celery import Celery

from celery_reliable.ledger import Ledger, Look
from celery_reliable.model import State
from celery_reliable.operations.filters import EVERYTHING, Filter, Subject
from celery_reliable.operations.messages import envelope_of, object_of, queue_of
from celery_reliable.operations.pages import Page, Position
from celery_reliable.recovery import MOST_BYTES

__all__ = ["Kind", "Walk"]

T = TypeVar("T")

#: Records looked at for one page: a tenth of a second or two.
_MOST = 1_000
#: Of messages, in one page.
_MOST_BYTES_OF_A_PAGE = 8 * MOST_BYTES
#: Before all times: what runs comes first, by its id.
_RUNNING_MS = -1
#: Records read in the first round trip, and at the most in one: each reads twice as many as before.
_FIRST, _AT_ONCE = 64, 512


class Kind(str, Enum):
    """What a list of tasks is of."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    #: Dead letters of which Celery has not been told yet.
    OWED = "owed"
    DEAD = "dead"


class Walk:
    """Yields what runs, by id, and then what somebody must look at, by the time of that; or dead
    letters by the time of their burial.  Few are in memory at a time.

    After each, ``place`` is where the walk goes on, whatever comes and goes meanwhile, and
    ``before`` is where one goes on that is to yield it again.

    Args:
        app: whose tasks say which object a message is about.
        ledger: where they are.
        wanted: those that fit.
        now_ms: the ledger's time, from which ages are reckoned.
        kind: only these; None: all but dead letters.
        groups: of dead letters only those of these groups, by their ids; None: of all.
        is_latest_first: of dead letters; else the oldest.
        until_ms: no letter that was buried later.
        place: where to begin.
        most: how many to look at, whether they fit or not; None: all.
        deadline: by `time.monotonic`; nothing is read after it, but once.
        look_seconds: look at as many as there is time for, in place of both.
    """

    def __init__(
        self,
        app: Celery,
        ledger: Ledger,
        wanted: Filter = EVERYTHING,
        now_ms: int = 0,
        *,
        kind: Kind | None = None,
        groups: Sequence[str] | None = None,
        is_latest_first: bool = False,
        until_ms: int | None = None,
        place: Position | None = None,
        most: int | None = _MOST,
        deadline: float | None = None,
        look_seconds: float = 0.0,
    ) -> None:
        if look_seconds:
            most, deadline = None, time.monotonic() + look_seconds
        self.place = self.before = place
        self.looked_at = self._n_bytes = 0
        self.is_over = False
        self._app = app
        self._ledger = ledger
        self._wanted = wanted
        # What records tell without their messages.
        self._light_wanted = replace(wanted, queue=None, object_id=None)
        self._now_ms = now_ms
        self._kind = kind
        self._groups = groups
        self._order: dict[str, Any] = {"is_latest_first": is_latest_first, "until_ms": until_ms}
        self._most = most
        self._deadline = deadline

    def __iter__(self) -> Iterator[Look]:
        size = _FIRST
        while self._may_read():
            limit, size = size, min(2 * size, _AT_ONCE)
            if self._most is not None:
                limit = min(limit, self._most - self.looked_at)
            entries = self._entries(limit)
            looks = self._fitting(entries)
            ids = [one.record.task_id for one in looks if one is not None]
            whole = self._ledger.looks_in_groups(ids, most_bytes=MOST_BYTES)
            for (task_id, ms), look in zip(entries, looks, strict=True):
                self.looked_at += 1
                self.before, self.place = self.place, Position(ms, task_id)
                if look is not None and (found := self._with_message(next(whole), ms)):
                    yield found
            if len(entries) < limit:
                self.is_over = True
                return

    @property
    def cursor(self) -> str:
        """Leads to what follows; empty when nothing does."""
        return "" if self.is_over or self.place is None else self.place.cursor

    def page(self, limit: int, view: Callable[[Look], T | None]) -> Page[T]:
        """Return at most *limit* views; those that are None are left out."""
        found: list[T] = []
        for look in self:
            if (one := view(look)) is not None:
                found.append(one)
            if len(found) >= limit or self._n_bytes > _MOST_BYTES_OF_A_PAGE:
                break
        return Page(tuple(found), self.cursor, self.looked_at, not self.cursor)

    def _may_read(self) -> bool:
        if self._deadline is not None and self.looked_at and time.monotonic() > self._deadline:
            return False
        return self._most is None or self.looked_at < self._most

    def _entries(self, limit: int) -> list[tuple[str, int]]:
        """Return ids and their ms, at most *limit* that follow the place."""
        ledger, place = self._ledger, None
        if self.place is not None:
            place = self.place.ms, self.place.id
        if self._kind is Kind.DEAD:
            if self._groups is None:
                return ledger.letters_after(place, limit, **self._order)
            of = ledger.groups.letters_of
            several = [
                one for each in self._groups for one in of(each, place, limit, **self._order)
            ]
            several.sort(key=lambda one: one[::-1], reverse=self._order["is_latest_first"])
            return several[:limit]
        found: list[tuple[str, int]] = []
        if place is None or place[0] == _RUNNING_MS:
            if self._kind in (None, Kind.RUNNING):
                ids = sorted({one for look in ledger.worker_looks() for one in look.claims})
                ids = [one for one in ids if place is None or one > place[1]]
                found = [(one, _RUNNING_MS) for one in ids[:limit]]
            place = None
        if self._kind is Kind.RUNNING or len(found) == limit:
            return found
        return found + ledger.due_after(place, limit - len(found))

    def _fitting(self, entries: Sequence[tuple[str, int]]) -> list[Look | None]:
        """Return what fits as far as records tell without their messages; None of the others."""
        looks = self._ledger.look_all([task_id for task_id, _ in entries])
        return [
            look
            if look is not None
            and self._is_meant(look, ms)
            and self._light_wanted.matches(self._subject(look), self._now_ms)
            else None
            for (_, ms), look in zip(entries, looks, strict=True)
        ]

    def _is_meant(self, look: Look, ms: int) -> bool:
        """Whether it is of the kind, and of one of the groups."""
        kind, state = self._kind, look.record.state
        if kind is Kind.DEAD:
            letter = look.letter
            if letter is None or letter.buried_ms != ms:
                return False
            return self._groups is None or letter.group.id in self._groups
        if (state is State.RUNNING) != (ms == _RUNNING_MS):
            # What runs with a limit came before.
            return False
        if kind is Kind.OWED:
            return state is State.DEAD and look.record.is_owed
        return kind is None or kind.value == state.value

    def _with_message(self, look: Look | None, ms: int) -> Look | None:
        """Return what was read, if it still is what is meant and fits."""
        if look is None or (self._kind is Kind.DEAD and not self._is_meant(look, ms)):
            return None
        self._n_bytes += len(look.record.message)
        if self._wanted == self._light_wanted:
            return look
        return look if self._wanted.matches(self._subject(look), self._now_ms) else None

    def _subject(self, look: Look) -> Subject:
        record, letter = look.record, look.letter
        envelope = envelope_of(record) if record.message else None
        has_object = envelope is not None and self._wanted.object_id is not None
        ran = [record.owner, *(one.owner for one in look.history if one.what != "replayed")]
        return Subject(
            task_id=record.task_id,
            name=record.name,
            queue=queue_of(envelope),
            reason=letter.reason.value if letter else "",
            exception=letter.exception if letter else "",
            object_id=object_of(self._app, envelope) if envelope and has_object else "",
            workers=tuple(filter(None, ran)),
            at_ms=letter.buried_ms if letter else record.published_ms,
        )
