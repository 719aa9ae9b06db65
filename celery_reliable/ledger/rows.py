"""Turns what Redis returns for a hash into a record or a lease.

The fields of each class say which fields of the hash are read, and how.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, get_type_hints

import redis

from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.ledger.caller import text_of
from celery_reliable.model import Claim, EndedTask, Group, HistoryEntry, Record, State

__all__ = [
    "LEASE_FIELDS",
    "RECORD_FIELDS",
    "Parser",
    "claims",
    "ended",
    "lease",
    "record",
    "server_facts",
    "texts",
]

T = TypeVar("T")

#: How a value of a hash, or of what is kept as JSON, is read by the type of its field; None: there
#: is none.
_READ: dict[Any, Callable[[Any], Any]] = {
    bool: lambda value: value is not None,
    int: lambda value: int(value or 0),
    int | None: lambda value: None if value is None else int(value),
    str: lambda value: str(value or ""),
    tuple[str, ...]: lambda value: tuple(json.loads(value or "[]")),
    tuple[HistoryEntry, ...]: lambda value: _history(value or ""),
    Group: lambda value: Group.of(value or ""),
}


class Parser(Generic[T]):
    """Makes one class of what a hash has; *apart*: its fields that are given besides."""

    def __init__(self, kind: type[T], *apart: str) -> None:
        self._kind = kind
        hints = get_type_hints(kind)
        #: How each field is called there, and how it is read.
        self._parts = {
            one: (self._stored(one), _READ[hint]) for one, hint in hints.items() if one not in apart
        }
        self._defaults = {name: read(None) for name, (_, read) in self._parts.items()}
        self.fields = tuple(stored for stored, _ in self._parts.values())

    @staticmethod
    def _stored(name: str) -> str:
        # The number of the last attempt is how many there were.
        return "attempt" if name == "attempts" else name.removeprefix("is_")

    def make(self, got: Mapping[str, Any], **apart: Any) -> T:
        """Return one.  Raises ValueError where that cannot be read."""
        values = self._defaults.copy()
        for name, (stored, read) in self._parts.items():
            if (value := got.get(stored)) is not None:
                values[name] = read(value)
        return self._kind(**values, **apart)


def _history(text: str) -> tuple[HistoryEntry, ...]:
    """Return a history; none of one that is damaged.  A later version may have written other
    fields.
    """
    try:
        return tuple(_ENTRY.make(entry) for entry in json.loads(text or "[]"))
    except (AttributeError, TypeError, ValueError):
        return ()


_RECORD = Parser(
    Record, "task_id", "state", "token", "pid", "claimed_ms", "owner", "stopping_on", "next_epoch"
)
_LEASE = Parser(WorkerLease, "worker", "is_dead", "until_ms", "facts", "verdict")
_ENTRY = Parser(HistoryEntry)
_ENDED = Parser(EndedTask, "task_id")

RECORD_FIELDS = ("state", "claim", "stopping", "moved", *_RECORD.fields)
LEASE_FIELDS = ("state", "facts", "verdict", "charged", *_LEASE.fields)


def texts(row: Sequence[bytes | None], fields: tuple[str, ...]) -> dict[str, str]:
    """Return what a hash has of *fields*."""
    return {
        name: text_of(value) for name, value in zip(fields, row, strict=True) if value is not None
    }


def record(task_id: str, got: Mapping[str, str]) -> Record | None:
    """Return the record in a hash; None if that is empty."""
    if "state" not in got:
        return None
    claim, _, token = got.get("claim", "0 0 ").partition("\n")
    pid, claimed_ms, owner = claim.split(" ", 2)
    return _RECORD.make(
        got,
        task_id=task_id,
        state=State(got["state"]),
        token=token,
        pid=int(pid),
        claimed_ms=int(claimed_ms),
        owner=owner,
        stopping_on=got.get("stopping", "").partition("\n")[0].partition(" ")[2],
        next_epoch=got.get("moved", "").partition(" ")[0],
    )


def ended(task_id: str, text: bytes) -> EndedTask:
    """Return what is kept of a task that has ended.  What a record did not have is false there."""
    return _ENDED.make(json.loads(text_of(text)), task_id=task_id)


def claims(worker: str, raw: Mapping[bytes, bytes]) -> dict[str, tuple[Claim, int]]:
    """Return what a worker runs, by the ids of the tasks: its claim, and the pid of its process."""
    found = {}
    for key, value in raw.items():
        attempt, pid, token = value.decode().split(" ", 2)
        task_id = text_of(key)
        found[task_id] = (Claim(task_id, int(attempt), worker, token), int(pid))
    return found


def lease(worker: str, until_ms: int, row: Sequence[bytes | None]) -> WorkerLease:
    """Return the lease in a row."""
    got = texts(row, LEASE_FIELDS)
    return _LEASE.make(
        got,
        worker=worker,
        is_dead=got.get("state") != "alive",
        until_ms=until_ms,
        facts=json.loads(got.get("facts", "{}")),
        verdict=Verdict(got.get("verdict", ""), got.get("charged", "")),
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
