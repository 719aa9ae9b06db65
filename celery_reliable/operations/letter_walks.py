"""Reading dead letters in order, some at a time: those that fit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from celery import Celery

from celery_reliable.ledger import Ledger, death_of, group_of
from celery_reliable.model import DeadLetter
from celery_reliable.operations.filters import Filter, Subject
from celery_reliable.operations.messages import envelope_of, object_of
from celery_reliable.operations.pages import Position
from celery_reliable.recovery import MOST_BYTES

__all__ = ["LetterWalk"]

#: Read in one round trip.
_AT_ONCE = 100


class LetterWalk:
    """Yields the dead letters that fit, from a place on; of which few are in memory at a time.

    After each, ``place`` is where the walk goes on, whatever comes and goes meanwhile, and
    ``before`` is where one goes on that is to yield it again.  What the index of groups has too
    much of is put right on the way.

    Args:
        app: whose tasks say which object a message is about.
        ledger: where they are.
        wanted: those that fit.
        now_ms: the server's time, from which ages are reckoned.
        group: only those of this one, by its id.
        groups: look at no others than those of these, which the index knows completely.
        place: where to begin.
        is_latest_first: else the oldest.
        until_ms: none that was buried later.
        most: how many to look at; None: all.
        deadline: by `time.monotonic`; nothing is read after it, but once.
    """

    def __init__(
        self,
        app: Celery,
        ledger: Ledger,
        wanted: Filter,
        now_ms: int,
        *,
        group: str = "",
        groups: Sequence[str] = (),
        place: Position | None = None,
        is_latest_first: bool = False,
        until_ms: int | None = None,
        most: int | None = None,
        deadline: float | None = None,
    ) -> None:
        self._app = app
        self._ledger = ledger
        self._wanted = wanted
        # What records tell without their messages.
        self._light = replace(wanted, queue=None, object_id=None)
        self._now_ms = now_ms
        self._group = group
        self._groups = (group,) if group else groups
        self._is_latest_first = is_latest_first
        self._until_ms = until_ms
        self._most = most
        self._deadline = deadline
        self.place = self.before = place
        self.looked_at = 0
        self.n_bytes = 0
        self.is_over = False

    def __iter__(self) -> Iterator[DeadLetter]:
        while self._may_read():
            entries = self._entries()
            light = self._ledger.light_letters([task_id for task_id, _ in entries])
            fitting = [
                (task_id, ms, letter)
                for (task_id, ms), letter in zip(entries, light, strict=True)
                if letter is not None and self._may_fit(letter, ms)
            ]
            ids = iter([task_id for task_id, _, _ in fitting] + [None])
            whole = self._ledger.letters_in_groups(
                [task_id for task_id, _, _ in fitting], most_bytes=MOST_BYTES
            )
            if self._group:
                self._put_right(entries, light)
            following = next(ids)
            for task_id, ms in entries:
                self.looked_at += 1
                self.before, self.place = self.place, Position(ms, task_id)
                if task_id != following:
                    continue
                following, letter = next(ids), next(whole)
                if letter is None or letter.buried_ms != ms:
                    continue
                self.n_bytes += len(letter.message)
                if not self._wanted.needs_message or self._fits(letter):
                    yield letter
            if len(entries) < _AT_ONCE:
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

    def _entries(self) -> list[tuple[str, int]]:
        place = None if self.place is None else (self.place.ms, self.place.id)
        if self._groups:
            found = [
                one
                for group in self._groups
                for one in self._ledger.groups.letters_of(
                    group,
                    place,
                    _AT_ONCE,
                    is_latest_first=self._is_latest_first,
                    until_ms=self._until_ms,
                )
            ]
            found.sort(key=lambda one: (one[1], one[0]), reverse=self._is_latest_first)
            return found[:_AT_ONCE]
        return self._ledger.letters_after(
            place, _AT_ONCE, is_latest_first=self._is_latest_first, until_ms=self._until_ms
        )

    def _may_fit(self, letter: DeadLetter, ms: int) -> bool:
        if letter.buried_ms != ms or (self._group and group_of(letter).id != self._group):
            return False
        return self._light.matches(_subject(letter), self._now_ms)

    def _fits(self, letter: DeadLetter) -> bool:
        envelope = envelope_of(letter)
        subject = _subject(letter)
        if envelope is not None:
            subject = replace(
                subject,
                queue=envelope.routing_key or envelope.exchange,
                object_id="" if self._wanted.object_id is None else object_of(self._app, envelope),
            )
        return self._wanted.matches(subject, self._now_ms)

    def _put_right(self, entries: list[tuple[str, int]], light: list[DeadLetter | None]) -> None:
        wrong = [
            f"{self._group} {ms:015d} {task_id}".encode("utf-8", "backslashreplace")
            for (task_id, ms), letter in zip(entries, light, strict=True)
            if letter is None or letter.buried_ms != ms or group_of(letter).id != self._group
        ]
        if wrong:
            self._ledger.groups.look_at(wrong)


def _subject(letter: DeadLetter) -> Subject:
    return Subject(
        task_id=letter.task_id,
        name=letter.name,
        reason=letter.reason.value,
        exception=letter.exception,
        cause=str(death_of(letter)),
        workers=tuple(
            {one.owner for one in letter.history if one.owner and one.what != "replayed"}
        ),
        at_ms=letter.buried_ms,
    )
