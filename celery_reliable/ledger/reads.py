"""What can be read of records and of the server; nothing here decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from celery_reliable.ledger import rows
from celery_reliable.ledger.caller import text_of
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import DeadLetter, Due, EndedTask, Record

__all__ = [
    "LetterReads",
    "Reads",
    "entries_after",
]


def entries_after(
    client: Any,
    key: str,
    after: tuple[int, bytes] | None,
    limit: int,
    *,
    is_latest_first: bool = False,
    until_ms: int | None = None,
) -> list[tuple[bytes, int]]:
    """Return ids and times of burials: at most *limit* that follow the place *after*, (time, id),
    whether that one is there still or not.  *until_ms*: none that was buried later.

    Fewer than *limit* are the last.  The cost is that of what is returned, and of what was buried
    in the very millisecond of *after*.
    """
    low: Any = "-inf"
    high: Any = "+inf" if until_ms is None else until_ms
    if after is not None and is_latest_first:
        high = after[0] if until_ms is None else min(after[0], until_ms)
    elif after is not None:
        low = after[0]
    begin, end = (high, low) if is_latest_first else (low, high)
    found: list[tuple[bytes, int]] = []
    offset = 0
    while len(found) < limit:
        # One of them is the one before, as a rule.
        asked = limit - len(found) + 1
        got = client.zrange(
            key,
            begin,
            end,
            byscore=True,
            desc=is_latest_first,
            offset=offset,
            num=asked,
            withscores=True,
        )
        for id_, score in got:
            entry = (int(score), id_)
            if after is None or (entry < after if is_latest_first else entry > after):
                found.append((id_, int(score)))
        if len(got) < asked:
            break
        offset += len(got)
    return found[:limit]


class LetterReads(TransitionGroup):
    """Reads of dead letters and of ended tasks, which may have changed when the answer arrives."""

    def dead_letter(self, task_id: str) -> DeadLetter | None:
        """Return one dead letter, or None."""
        return self.dead_letters([task_id])[0]

    def dead_letters(self, task_ids: Sequence[str]) -> list[DeadLetter | None]:
        """Return the dead letters of *task_ids* in one round trip, None for those that are none."""
        if not task_ids:
            return []
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        found = self._caller.read(
            "dead letters", lambda client: rows.hmget_all(client, keys, rows.LETTER_FIELDS)
        )
        return [rows.letter(task_id, row) for task_id, row in zip(task_ids, found, strict=True)]

    def light_letters(self, task_ids: Sequence[str]) -> list[DeadLetter | None]:
        """Return the same without message and traceback, which may be long; None also for what
        cannot be read.
        """
        if not task_ids:
            return []
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        fields = tuple(one for one in rows.LETTER_FIELDS if one not in ("message", "traceback"))
        found = self._caller.read(
            "dead letters", lambda client: rows.hmget_all(client, keys, fields)
        )
        return [
            rows.letter_if_readable(task_id, row, fields)
            for task_id, row in zip(task_ids, found, strict=True)
        ]

    def letters_in_groups(
        self, task_ids: Sequence[str], *, most_bytes: int
    ) -> Iterator[DeadLetter | None]:
        """Yield dead letters, read in groups whose messages have at most *most_bytes* together,
        unless one alone has more; None for what is none, and for what cannot be read.
        """
        if not task_ids:
            return
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        lengths = self._caller.read(
            "lengths", lambda client: rows.hstrlen_all(client, keys, "message")
        )
        start = n_bytes = 0
        for end, length in enumerate([*lengths, most_bytes]):
            if end > start and (n_bytes + length > most_bytes or end == len(keys)):
                some, fields = keys[start:end], rows.LETTER_FIELDS
                found = self._caller.read("dead letters", partial(_rows, some, fields))
                for task_id, row in zip(task_ids[start:end], found, strict=True):
                    yield rows.letter_if_readable(task_id, row, fields)
                start, n_bytes = end, 0
            n_bytes += length

    def letters_after(
        self,
        after: tuple[int, str] | None,
        limit: int,
        *,
        is_latest_first: bool = False,
        until_ms: int | None = None,
    ) -> list[tuple[str, int]]:
        """Return ids of dead letters and when they were buried in ms: at most *limit* that follow
        the place *after*; *until_ms*: none that was buried later.
        """
        place = None if after is None else (after[0], encoded(after[1]))
        found = self._caller.read(
            "letters after",
            lambda client: entries_after(
                client,
                self.keys.dead,
                place,
                limit,
                is_latest_first=is_latest_first,
                until_ms=until_ms,
            ),
        )
        return [(text_of(id_), ms) for id_, ms in found]

    def dead_ids(self, limit: int = 100) -> list[str]:
        """Return ids of at most *limit* dead letters, the latest first."""
        found = self._caller.read(
            "dead ids", lambda client: client.zrange(self.keys.dead, 0, limit - 1, desc=True)
        )
        return [text_of(item) for item in found]

    def oldest_dead(self, limit: int, *, start: int = 0) -> list[tuple[str, int]]:
        """Return ids of the *limit* dead letters that were buried first, after *start* of them, and
        when, in ms.
        """
        found = self._caller.read(
            "oldest dead",
            lambda client: client.zrange(self.keys.dead, start, start + limit - 1, withscores=True),
        )
        return [(text_of(name), int(score)) for name, score in found]

    def reasons_of(self, task_ids: Sequence[str]) -> list[str]:
        """Return why each of the dead letters *task_ids* was buried; empty for what is none."""
        if not task_ids:
            return []
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        found = self._caller.read(
            "reasons", lambda client: rows.hmget_all(client, keys, ("reason",))
        )
        return [reason.decode() if reason else "" for (reason,) in found]

    def count_dead(self) -> int:
        """Return how many dead letters there are."""
        return int(self._caller.read("count dead", lambda client: client.zcard(self.keys.dead)))

    def ended_task(self, task_id: str) -> EndedTask | None:
        """Return what is kept of a task that has ended; None when nothing is.

        What has a record lives, whatever is kept of a former life of its id.
        """
        found = self._caller.read("ended", lambda client: client.hget(self.keys.ended, task_id))
        return None if found is None else rows.ended(task_id, found)

    def ended_tasks(self, *, start: int = 0, limit: int = 100) -> list[EndedTask]:
        """Return what is kept of *limit* tasks after the first *start*, the latest first."""

        def read(client: Any) -> list[tuple[bytes, bytes | None]]:
            ids = client.zrange(self.keys.ended_at, start, start + limit - 1, desc=True)
            return list(zip(ids, client.hmget(self.keys.ended, ids), strict=True)) if ids else []

        found = self._caller.read("ended tasks", read)
        return [rows.ended(name.decode(), text) for name, text in found if text is not None]


def _rows(keys: list[bytes], fields: tuple[str, ...], client: Any) -> list[list[bytes | None]]:
    return rows.hmget_all(client, keys, fields)


T = TypeVar("T")


class Reads(TransitionGroup):
    """Reads of records, which may have changed when the answer arrives."""

    def server_facts(self) -> dict[str, str]:
        """Return INFO and the CONFIG values that are checked; some servers hide a few."""
        return self._caller.read("server facts", rows.server_facts)

    def ask(self, what: str, run: Callable[[Any], T], patience_seconds: float | None = None) -> T:
        """Return what *run* asks with a client.  Errors call it *what*."""
        return self._caller.read(what, run, patience_seconds)

    def find(self, task_id: str, *, patience_seconds: float | None = None) -> Record | None:
        """Return the record of *task_id*; None when it has ended or was never recorded."""
        return self.find_all([task_id], patience_seconds=patience_seconds)[0]

    def find_all(
        self, task_ids: Sequence[str], *, patience_seconds: float | None = None
    ) -> list[Record | None]:
        """Return the records of *task_ids* in one round trip, None for those that are gone."""
        found = self.find_each(task_ids, patience_seconds=patience_seconds)
        return [one.record for one in found]

    def find_each(
        self, task_ids: Sequence[str], *, patience_seconds: float | None = None
    ) -> list[rows.Found]:
        """Return the same unparsed: one that cannot be read does not hide the others."""
        if not task_ids:
            return []
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        found = self._caller.read(
            "find",
            lambda client: rows.hmget_all(client, keys, rows.RECORD_FIELDS),
            patience_seconds,
        )
        return [rows.Found(task_id, row) for task_id, row in zip(task_ids, found, strict=True)]

    def find_in_groups(
        self,
        task_ids: Sequence[str],
        *,
        most_bytes: int,
        patience_seconds: float | None = None,
    ) -> Iterator[rows.Found]:
        """Yield the same, read in groups.

        The messages of a group have at most *most_bytes* together, unless one alone has more.
        """
        if not task_ids:
            return
        keys = [encoded(self.keys.record(task_id)) for task_id in task_ids]
        lengths = self._caller.read(
            "lengths",
            lambda client: rows.hstrlen_all(client, keys, "message"),
            patience_seconds,
        )
        group: list[str] = []
        n_bytes = 0
        for task_id, length in zip(task_ids, lengths, strict=True):
            if group and n_bytes + length > most_bytes:
                yield from self.find_each(group, patience_seconds=patience_seconds)
                group, n_bytes = [], 0
            group.append(task_id)
            n_bytes += length
        yield from self.find_each(group, patience_seconds=patience_seconds)

    def due_between(self, first_ms: int, last_ms: int, *, limit: int) -> list[Due]:
        """Return at most *limit* records that are due between two times in ms, both included."""
        found = self._caller.read(
            "due between",
            lambda client: client.zrangebyscore(
                self.keys.due, first_ms, last_ms, start=0, num=limit, withscores=True
            ),
        )
        return [Due(name.decode(), f"{score:.0f}") for name, score in found]

    def all_due(self, *, start: int, limit: int) -> list[Due]:
        """Return at most *limit* records by the time at which they are due, past or future."""
        found = self._caller.read(
            "all due",
            lambda client: client.zrange(self.keys.due, start, start + limit - 1, withscores=True),
        )
        return [Due(name.decode(), f"{score:.0f}") for name, score in found]
