"""Reads of the indexes: what is due, what is dead, and workers with what they run.

Nothing here decides.  Each look reads so much at most, however many records there are, and uses no
right that the rest of the package does not need: keys are not searched, but found by the indexes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import schema
from celery_reliable.ledger.caller import Part
from celery_reliable.ledger.schema import LEASE_FIELDS, slots, text_of
from celery_reliable.ledger.transitions import encoded
from celery_reliable.model import Claim, Due

__all__ = ["Held", "Indexes", "ObjectLook", "Place", "WorkerLook"]

#: The last one that was read of an index: its score and its id.
Place = tuple[int, str]


@dataclass(frozen=True)
class WorkerLook:
    """A worker with what it runs.  Times are ms of the ledger's clock; 0: not known."""

    lease: WorkerLease
    registered_ms: int
    lease_ms: int
    #: The suspect that it runs; empty for none.
    suspect: str
    #: What it reported with its last heartbeat, and when; empty before the first.
    doing: Mapping[str, Any]
    beat_ms: int
    #: Task id -> its claim and the pid of the process.
    claims: Mapping[str, tuple[Claim, int]]


@dataclass(frozen=True)
class Held:
    """What the lock of an object says.

    Attributes:
        task_id: who has it, or for whom it is kept.
        attempt: that took it; 0: it was taken as the task was published.
        kept_ms: for how long it is kept yet after a success; None: a task holds it.
    """

    task_id: str
    attempt: int
    kept_ms: int | None = None


@dataclass(frozen=True)
class ObjectLook:
    """An object with its places and its line.

    Attributes:
        held: who has which of its places, the first of which is 1.
        line: ids of those that stand in its line first, in order; some may have ended.
        in_line: how many stand there, those included.
    """

    held: tuple[tuple[int, Held], ...]
    line: tuple[str, ...] = ()
    in_line: int = 0


class Indexes(Part):
    """What is in the indexes, and what is looked at of objects; it may have changed when the answer
    arrives.
    """

    def due_between(self, first_ms: float, last_ms: float, *, limit: int) -> list[Due]:
        """Return at most *limit* records that are due between two times in ms, both included."""
        found = self._caller.read(
            "due between",
            lambda client: client.zrangebyscore(
                self.keys.due, first_ms, last_ms, start=0, num=limit, withscores=True
            ),
        )
        return [Due(name.decode(), f"{score:.0f}") for name, score in found]

    def letters_after(
        self,
        after: Place | None,
        limit: int,
        *,
        is_latest_first: bool = False,
        until_ms: int | None = None,
    ) -> list[tuple[str, int]]:
        """Return ids of dead letters and when they were buried in ms: at most *limit* that follow
        the place *after*; *until_ms*: none that was buried later.
        """
        return self._after(
            self.keys.dead, after, limit, is_latest_first=is_latest_first, until_ms=until_ms
        )

    def due_after(self, after: Place | None, limit: int) -> list[tuple[str, int]]:
        """Return ids of records at which somebody must look some time, and when in ms, the earliest
        first: at most *limit* that follow the place *after*.
        """
        return self._after(self.keys.due, after, limit)

    def _after(
        self, key: str, after: Place | None, limit: int, **how: Any
    ) -> list[tuple[str, int]]:
        place = None if after is None else (after[0], encoded(after[1]))
        found = self._caller.read(
            "page", lambda client: entries_after(client, key, place, limit, **how)
        )
        return [(text_of(id_), ms) for id_, ms in found]

    def count_dead(self) -> int:
        """Return how many dead letters there are."""
        return int(self._caller.read("count dead", lambda client: client.zcard(self.keys.dead)))

    def sample_due(self, most: int) -> tuple[int, list[str]]:
        """Return how many records there are at which somebody must look, and the ids of at most
        *most* of them, evenly from the first to the last.
        """
        due = self.keys.due
        total = int(self._caller.read("sample", lambda client: client.zcard(due)))
        ranks = [index * (total - 1) // max(most - 1, 1) for index in range(most)]
        if total <= most:
            ranks = list(range(total))
        found = self._caller.read_all("sample", [("ZRANGE", due, rank, rank) for rank in ranks])
        ids = dict.fromkeys(task_id for some in found for task_id in some)
        return total, [text_of(task_id) for task_id in ids]

    def worker_looks(self, patience_seconds: float | None = None) -> list[WorkerLook]:
        """Return all registered workers with what they run, dead ones that are not yet forgotten
        included, by name.
        """
        found = self._caller.read(
            "workers",
            lambda client: client.zrange(self.keys.workers, 0, -1, withscores=True),
            patience_seconds,
        )
        until_ms = {raw.decode(): int(score) for raw, score in found}
        workers = sorted(until_ms)
        read = self._caller.read_all(
            "workers",
            [("HMGET", self.keys.worker(one), *_WORKER_FIELDS) for one in workers]
            + [("HGETALL", self.keys.claims(one)) for one in workers],
            patience_seconds,
        )
        each = zip(workers, read[: len(workers)], read[len(workers) :], strict=True)
        return [_worker_look(one, until_ms[one], row, claims) for one, row, claims in each]

    def object_look(self, object_key: str, *, places: int, most_in_line: int) -> ObjectLook:
        """Return who has which of the first *places* of an object, and at most *most_in_line* of
        those that stand in its line, in one round trip.

        A holder whose record is gone keeps nobody out, but while something of it is being stopped.
        """
        locks = [encoded(self.keys.lock(slot)) for slot in slots(object_key, places)]
        waiting = encoded(self.keys.waiting(f"object {object_key}"))
        *values, ttl, in_line, line = self._caller.read_all(
            "object",
            [
                *(("GET", lock) for lock in locks),
                # Of several places none is kept.
                ("PTTL", locks[0]),
                ("ZCARD", waiting),
                ("ZRANGE", waiting, 0, most_in_line - 1),
            ],
        )
        held = [(place, _held(value, ttl)) for place, value in enumerate(values, 1)]
        return ObjectLook(
            tuple((place, one) for place, one in held if one is not None),
            tuple(text_of(task_id) for task_id in line),
            int(in_line),
        )

    def line_of(
        self, object_key: str, places: int, task_id: str
    ) -> tuple[tuple[Held, ...], int | None]:
        """Return who has the places of an object, and how many stand in its line before a task;
        None if that does not stand there.
        """
        found = self.object_look(object_key, places=max(places, 1), most_in_line=1)
        rank = self._caller.read(
            "line",
            lambda client: client.zrank(
                encoded(self.keys.waiting(f"object {object_key}")), encoded(task_id)
            ),
        )
        return tuple(one for _, one in found.held), None if rank is None else int(rank)


_LOOK = schema.Parser(WorkerLook, "lease", "suspect", "doing", "claims")
_WORKER_FIELDS = (*LEASE_FIELDS, "suspect", "suspect_claim", "doing", *_LOOK.fields)


def _worker_look(
    worker: str, until_ms: int, row: Sequence[bytes | None], raw_claims: Mapping[bytes, bytes]
) -> WorkerLook:
    got = schema.texts(row, _WORKER_FIELDS)
    suspect = got.get("suspect", "")
    # The note stays when the suspect has ended.
    runs_suspect = raw_claims.get(encoded(suspect)) == encoded(got.get("suspect_claim", ""))
    return _LOOK.make(
        got,
        lease=schema.lease(worker, until_ms, row[: len(LEASE_FIELDS)]),
        suspect=suspect if runs_suspect else "",
        doing=json.loads(got.get("doing") or "{}"),
        claims=schema.claims(worker, raw_claims),
    )


def _held(value: bytes | None, ttl_ms: int) -> Held | None:
    if value is None:
        return None
    attempt, _, task_id = text_of(value).partition(":")
    if attempt == "kept":
        return Held(task_id, 0, max(0, int(ttl_ms)))
    return Held(task_id, int(attempt) if attempt.isdecimal() else 0)


def entries_after(
    client: Any,
    key: str,
    after: tuple[int, bytes] | None,
    limit: int,
    *,
    is_latest_first: bool = False,
    until_ms: int | None = None,
) -> list[tuple[bytes, int]]:
    """Return ids and times of an index: at most *limit* that follow the place *after*, (time, id),
    whether that one is there still or not.  *until_ms*: none of a later time.

    Fewer than *limit* are the last.  The cost is that of what is returned; and, where *after* is
    gone or the latest come first, of what has the very time of *after*.
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
    if after is not None and not is_latest_first:
        # Of what has the same time there may be any number: what was published by one call, say.
        pipe = client.pipeline(transaction=False)
        pipe.zscore(key, after[1]).zrank(key, after[1]).zcount(key, "-inf", f"({after[0]}")
        score, rank, before = pipe.execute()
        if score == after[0]:
            # Somebody may remove some meanwhile.
            offset = max(0, rank - before - limit)
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
