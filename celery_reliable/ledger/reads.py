"""What can be read of records and of the server; nothing here decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from celery_reliable.ledger import rows
from celery_reliable.ledger.transition_group import TransitionGroup
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import Due, Record

__all__ = ["Reads"]

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
