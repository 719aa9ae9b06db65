"""What happened lately to tasks and workers off the straight way, and what happens now."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from celery_reliable import events
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import Ledger, NotedRow
from celery_reliable.operations.pages import BadCursor
from celery_reliable.operations.views import Happened, Happening
from celery_reliable.operations.words import moment

__all__ = ["KINDS", "Happenings"]

#: The names of the events that are noted.
KINDS = tuple(sorted(name for name, one in events.DECLARED.items() if one.is_noted))

#: So many are read at once, and looked at for a page.
_BATCH, _MOST = 500, 10_000
_WAIT_MS = 500
#: Between two tries to reach a ledger that is away.
_AWAY_SECONDS = 0.5
_COMPARE_SECONDS = 5.0
_ID = re.compile(r"\d{1,20}-\d{1,20}")


class Happenings:
    """What the ledger has noted.  Raises what the ledger raises, and BadCursor."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._notes = ledger.happenings

    def page(
        self,
        after: str = "",
        *,
        limit: int = 100,
        kinds: Sequence[str] = (),
        task: str = "",
        newer_than_seconds: float | None = None,
    ) -> Happened:
        """Return at most *limit* of those after a cursor; without one, the latest.

        Args:
            after: the cursor of what was seen last; empty: of nothing.
            limit: at most so many.
            kinds: only these; empty: all.
            task: only of tasks with this name, which may be a pattern, or this id.
            newer_than_seconds: only what happened within so long, by the server's clock.
        """
        wanted = self._wanted(kinds, task, newer_than_seconds)
        if after:
            return self._after(_checked(after), limit, wanted)
        found: list[Happening] = []
        cursor = before = ""
        for _ in range(_MOST // _BATCH):
            rows = self._notes.latest(_BATCH, before=before)
            if rows:
                cursor, before = cursor or rows[0].id, rows[-1].id
            found += [one for one in map(_happening, rows) if wanted(one)]
            if len(rows) < _BATCH or len(found) >= limit:
                break
        return Happened(tuple(reversed(found[:limit])), cursor or "0-0", True)

    def follow(
        self,
        after: str = "",
        *,
        kinds: Sequence[str] = (),
        task: str = "",
        on_away: Callable[[LedgerUnavailable], None] | None = None,
    ) -> Iterator[Happened]:
        """Yield what happens after a cursor, without one from now on, for as long as it is asked.

        Every half second at the latest something is yielded, though nothing has happened.  While
        the ledger cannot be reached nothing is, and it is tried again, for ever.  *on_away* is
        told when that begins.
        """
        wanted = self._wanted(kinds, task, None)
        cursor = _checked(after) if after else self._notes.last_id()
        is_away = False
        compared_at = time.monotonic()
        while True:
            try:
                found = self._after(cursor, _BATCH, wanted, wait_ms=_WAIT_MS)
                if found.cursor == cursor and time.monotonic() - compared_at > _COMPARE_SECONDS:
                    compared_at = time.monotonic()
                    # A server that lost its notes, with a clock that is behind, has lower ids.
                    cursor = min(cursor, self._notes.last_id(), key=_order)
                    found = replace(found, cursor=cursor)
            except LedgerUnavailable as exc:
                if not is_away and on_away is not None:
                    on_away(exc)
                is_away = True
                time.sleep(_AWAY_SECONDS)
            else:
                is_away, cursor = False, found.cursor
                yield found

    def _after(
        self, after: str, limit: int, wanted: Callable[[Happening], bool], *, wait_ms: int = 0
    ) -> Happened:
        found: list[Happening] = []
        for _ in range(_MOST // _BATCH):
            rows = self._notes.after(after, _BATCH, wait_ms=wait_ms)
            for row in rows:
                after = row.id
                one = _happening(row)
                if wanted(one):
                    found.append(one)
                if len(found) >= limit:
                    return Happened(tuple(found), after, row is rows[-1] and len(rows) < _BATCH)
            if len(rows) < _BATCH:
                break
        return Happened(tuple(found), after, len(rows) < _BATCH)

    def _wanted(
        self, kinds: Sequence[str], task: str, newer_than_seconds: float | None
    ) -> Callable[[Happening], bool]:
        since_ms = 0.0
        if newer_than_seconds is not None:
            since_ms = self._ledger.workers.time_ms() - newer_than_seconds * 1000

        def is_wanted(one: Happening) -> bool:
            if not one.kind or (kinds and one.kind not in kinds):
                return False
            if task and one.task_id != task and not fnmatchcase(one.name, task):
                return False
            return one.at is None or one.at.timestamp() * 1000 >= since_ms

        return is_wanted


def _happening(row: NotedRow) -> Happening:
    about = dict(row.about)
    name, task_id = str(about.pop("name", "")), str(about.pop("id", ""))
    return Happening(moment(row.at_ms), row.kind, name, task_id, about, row.is_last, row.id)


def _checked(cursor: str) -> str:
    if not _ID.fullmatch(cursor):
        raise BadCursor(
            f"{cursor[:50]!r} is no cursor of an event: pass on one that was given, or none."
        )
    return cursor


def _order(cursor: str) -> tuple[int, int]:
    ms, _, number = cursor.partition("-")
    return int(ms), int(number or 0)
