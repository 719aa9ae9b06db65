"""A walk through the tasks that live, of which each step reads a bounded number of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from celery_reliable.ledger import Ledger, Look
from celery_reliable.model import State
from celery_reliable.operations.pages import Position

__all__ = ["Kind", "Walk"]

#: Records read in one round trip: few at first, as a page may be full with them.
_FIRST, _AT_ONCE = 64, 512
#: Records looked at in one walk: a tenth of a second or two.
_MOST = 1_000
#: Before all times: what runs comes first, by its id.
_RUNNING_MS = -1


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
