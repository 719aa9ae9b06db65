"""What can be read of dead letters, and of tasks that have ended; nothing here decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from celery_reliable.ledger import rows
from celery_reliable.ledger.dead_order import entries_after
from celery_reliable.ledger.replies import text_of
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import DeadLetter, EndedTask

__all__ = ["LetterReads"]


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
