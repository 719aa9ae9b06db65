"""Turns what Redis returns for a hash into a record, a dead letter or a lease."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.model import DeadLetter, EndedTask, HistoryEntry, Reason, Record, State

__all__ = [
    "LEASE_FIELDS",
    "LETTER_FIELDS",
    "RECORD_FIELDS",
    "Found",
    "ended",
    "history",
    "history_entry",
    "hmget_all",
    "hstrlen_all",
    "lease",
    "letter",
    "letter_if_readable",
    "record",
    "server_facts",
]

RECORD_FIELDS = (
    "state",
    "name",
    "epoch",
    "next_epoch",
    "attempt",
    "losses",
    "max_losses",
    "owner",
    "token",
    "pid",
    "message",
    "published_ms",
    "claimed_ms",
    "sent_ms",
    "waiting_ms",
    "resends",
    "unsent",
    "cause",
    "owed",
    "used",
    "stored",
    "called_off",
    "stopping_on",
    "members",
    "revoked",
    "waiting_for",
    "places",
    "published_as",
)
LETTER_FIELDS = (
    "state",
    "name",
    "reason",
    "exception",
    "traceback",
    "attempt",
    "losses",
    "published_ms",
    "buried_ms",
    "message",
    "history",
    "cause",
    "owed",
)

LEASE_FIELDS = (
    "state",
    "renewals",
    "client_id",
    "run_id",
    "cause",
    "facts",
    "thawed",
    "verdict",
    "charged",
    "opening",
    "opening_id",
    "opening_epoch",
)


@dataclass(frozen=True)
class Found:
    """The fields of one task's record, not parsed yet."""

    task_id: str
    row: Sequence[bytes | None]

    @property
    def record(self) -> Record | None:
        """The record; None if there is none.

        Raises ValueError if it cannot be parsed: a later version or somebody else wrote it.
        """
        return record(self.task_id, self.row)

    @property
    def is_readable(self) -> bool:
        """Whether `record` raises nothing."""
        try:
            record(self.task_id, self.row)
        except ValueError:
            return False
        return True


def hstrlen_all(client: redis.Redis, keys: list[bytes], field: str) -> list[int]:
    """Read how many bytes *field* of every key has, in one round trip."""
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.hstrlen(key, field)
    lengths: list[int] = pipe.execute()
    return lengths


def hmget_all(
    client: redis.Redis, keys: list[bytes], fields: tuple[str, ...]
) -> list[list[bytes | None]]:
    """Read *fields* of every key in one round trip."""
    pipe = client.pipeline(transaction=False)
    for key in keys:
        pipe.hmget(key, fields)
    rows: list[list[bytes | None]] = pipe.execute()
    return rows


def _texts(row: Sequence[bytes | None], fields: tuple[str, ...]) -> dict[str, str]:
    return {
        name: value.decode("utf-8", "replace")
        for name, value in zip(fields, row, strict=True)
        if value is not None
    }


def record(task_id: str, row: Sequence[bytes | None]) -> Record | None:
    """Return the record in a row; None if the row is empty."""
    got = _texts(row, RECORD_FIELDS)
    if "state" not in got:
        return None
    return Record(
        task_id=task_id,
        state=State(got["state"]),
        name=got.get("name", ""),
        epoch=got.get("epoch", ""),
        next_epoch=got.get("next_epoch", ""),
        attempt=int(got.get("attempt", 0)),
        losses=int(got.get("losses", 0)),
        max_losses=int(got["max_losses"]) if "max_losses" in got else None,
        owner=got.get("owner", ""),
        token=got.get("token", ""),
        pid=int(got.get("pid", 0)),
        message=got.get("message", ""),
        published_ms=int(got.get("published_ms", 0)),
        claimed_ms=int(got.get("claimed_ms", 0)),
        sent_ms=int(got.get("sent_ms", 0)),
        waiting_ms=int(got.get("waiting_ms", 0)),
        resends=int(got.get("resends", 0)),
        is_unsent="unsent" in got,
        cause=got.get("cause", ""),
        is_owed="owed" in got,
        is_revoked="revoked" in got,
        is_used="used" in got,
        stored=got.get("stored", ""),
        is_called_off="called_off" in got,
        stopping_on=got.get("stopping_on", ""),
        members=tuple(json.loads(got.get("members", "[]"))),
        waiting_for=got.get("waiting_for", ""),
        places=int(got.get("places", 0)),
        published_as=got.get("published_as", ""),
    )


def history_entry(told: dict[str, Any]) -> HistoryEntry:
    """Return one entry of a history.  A later version may have written other fields."""
    return HistoryEntry(
        at_ms=int(told.get("at_ms", 0)),
        what=str(told.get("what", "")),
        attempt=int(told.get("attempt", 0)),
        cause=str(told.get("cause", "")),
        owner=str(told.get("owner", "")),
        pid=int(told.get("pid") or 0),
        claimed_ms=int(told.get("claimed_ms") or 0),
    )


def ended(task_id: str, text: bytes) -> EndedTask:
    """Return what is kept of a task that has ended.  What a record did not have is false there."""
    told = json.loads(text.decode("utf-8", "replace"))
    return EndedTask(
        task_id=task_id,
        name=str(told.get("name") or ""),
        outcome=str(told.get("outcome") or ""),
        by=str(told.get("by") or ""),
        attempts=int(told.get("attempt") or 0),
        losses=int(told.get("losses") or 0),
        published_ms=int(told.get("published_ms") or 0),
        ended_ms=int(told.get("ended_ms") or 0),
        owner=str(told.get("owner") or ""),
        pid=int(told.get("pid") or 0),
        claimed_ms=int(told.get("claimed_ms") or 0),
        history=history(told.get("history") or ""),
    )


def history(text: str) -> tuple[HistoryEntry, ...]:
    """Return a history; none of one that is damaged."""
    try:
        told = json.loads(text or "[]")
        return tuple(history_entry(entry) for entry in told)
    except (AttributeError, TypeError, ValueError):
        return ()


def letter_if_readable(
    task_id: str, row: Sequence[bytes | None], fields: tuple[str, ...]
) -> DeadLetter | None:
    """Return the dead letter in a row of *fields*; None for what is none, and for what a later
    version or somebody else has written.
    """
    try:
        return letter(task_id, row, fields)
    except (KeyError, ValueError):
        return None


def letter(
    task_id: str, row: Sequence[bytes | None], fields: tuple[str, ...] = LETTER_FIELDS
) -> DeadLetter | None:
    """Return the dead letter in a row; None if the record is no dead letter."""
    got = _texts(row, fields)
    if got.get("state") != State.DEAD.value:
        return None
    return DeadLetter(
        task_id=task_id,
        name=got.get("name", ""),
        reason=Reason(got["reason"]),
        exception=got.get("exception", "") or got.get("cause", ""),
        traceback=got.get("traceback", ""),
        attempts=int(got.get("attempt", 0)),
        losses=int(got.get("losses", 0)),
        published_ms=int(got.get("published_ms", 0)),
        buried_ms=int(got["buried_ms"]),
        message=got.get("message", ""),
        history=history(got.get("history", "")),
        is_owed="owed" in got,
    )


def lease(worker: str, until_ms: int, row: Sequence[bytes | None]) -> WorkerLease:
    """Return the lease in a row."""
    got = _texts(row, LEASE_FIELDS)
    return WorkerLease(
        worker=worker,
        is_dead=got.get("state") != "alive",
        until_ms=until_ms,
        renewals=got.get("renewals", ""),
        client_id=got.get("client_id", ""),
        run_id=got.get("run_id", ""),
        cause=got.get("cause", ""),
        facts=json.loads(got.get("facts", "{}")),
        is_thawed="thawed" in got,
        verdict=Verdict(got.get("verdict", ""), got.get("charged", "")),
        opening=got.get("opening", ""),
        opening_id=got.get("opening_id", ""),
        opening_epoch=got.get("opening_epoch", ""),
    )


def server_facts(client: redis.Redis) -> dict[str, str]:
    """Read INFO and the CONFIG values of interest; managed servers hide some."""
    answers: Any = client
    facts: dict[str, str] = {}
    try:
        facts.update({name: str(value) for name, value in answers.info().items()})
    except redis.exceptions.NoPermissionError:
        pass
    except redis.ResponseError as exc:
        # redis-py begins with HELLO from release 8 on, which servers have from release 6 on.
        if "unknown command `HELLO`" not in str(exc):
            raise
        return {"redis_version": "5 or older"}
    for name in (
        "maxmemory",
        "maxmemory-policy",
        "appendonly",
        "appendfsync",
        "save",
        "min-replicas-to-write",
    ):
        try:
            facts.update({key: str(value) for key, value in answers.config_get(name).items()})
        except redis.ResponseError:
            continue
    return facts
