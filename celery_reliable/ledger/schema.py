"""What stands in Redis: the names of the ledger's keys, and the fields of its hashes, which become
records and leases.

All keys share one hash slot, by ``{namespace:0}``.  The fields of each class say which fields of a
hash are read, and how.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, get_type_hints

import redis

from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.model import Claim, EndedTask, HistoryEntry, Record, State

__all__ = [
    "LEASE_FIELDS",
    "RECORD_FIELDS",
    "Keys",
    "Parser",
    "claims",
    "ended",
    "lease",
    "line_of",
    "record",
    "server_facts",
    "slots",
    "text_of",
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
}


class Keys:
    """The names of those keys of one namespace that are read here.  The headers of the scripts name
    those that only scripts touch.

    The 0 is part of all names, so that partitions can be added for a cluster without renaming
    anything.
    """

    def __init__(self, namespace: str) -> None:
        #: What all begin with.
        self.begin = prefix = f"{{{namespace}:0}}:"
        #: ZSET: task id -> when somebody must look, in ms.
        self.due = f"{prefix}due"
        #: ZSET: task id -> when it was buried, in ms.
        self.dead = f"{prefix}dead"
        #: STREAM: what operators did.
        self.audit = f"{prefix}audit"
        #: STREAM: what happened to tasks and workers.
        self.happened = f"{prefix}happened"
        #: HASH: kind, task, cause and reason of an event, as JSON -> how often it happened.
        self.counts = f"{prefix}counts"
        #: ZSET of score 0: "<group> <buried_ms, 15 digits> <id>" of dead letters.
        self.grouped = f"{prefix}grouped"
        #: HASH: group -> what its letters have in common.
        self.groups = f"{prefix}groups"
        #: HASH: task id -> what happened to a task that has ended, as JSON.
        self.ended = f"{prefix}ended"
        #: HASH: generation, run_id, broker, passed_ms, grace_ms, ahead_ms, ahead_count,
        #: report, trimmed, trimmed_ms.
        self.meta = f"{prefix}meta"
        #: HASH: offset_ms and latest_ms of the ledger's clock.
        self.clock = f"{prefix}clock"
        #: HASH: order id -> the order, as JSON; and `version`.
        self.orders = f"{prefix}orders"
        #: ZSET: worker -> when its lease runs out, in ms.
        self.workers = f"{prefix}workers"
        #: ZSET: the own queue of a worker -> when a worker registered for it, in ms.
        self.direct = f"{prefix}direct"
        #: LIST with a TTL: not empty when the first moment for which a task waits has changed.
        self.bell = f"{prefix}bell"
        #: ZSET: run -> when a pass must look whether it is over, in ms.
        self.runs = f"{prefix}runs"
        #: A key that never exists, for a script that needs none in that place. An empty
        #: name would fit no key pattern of a user with few rights.
        self.none = f"{prefix}none"

    def record(self, task_id: str) -> str:
        """HASH: what the ledger knows of one task."""
        return f"{self.begin}task:{task_id}"

    def run(self, run: str) -> str:
        """HASH: task id of a member -> its worker; and what the run is."""
        return f"{self.begin}run:{run}"

    def worker(self, worker: str) -> str:
        """HASH: one worker's lease."""
        return f"{self.begin}worker:{worker}"

    def claims(self, worker: str) -> str:
        """HASH: task id -> "attempt pid token" of what the worker runs."""
        return f"{self.begin}claims:{worker}"

    def lock(self, object_key: str) -> str:
        """STRING: "<attempt>:<id>" of the task that holds an object, or "kept:<id>" with a TTL."""
        return f"{self.begin}lock:{object_key}"

    def waiting(self, reason: str) -> str:
        """ZSET: task id -> when it was published, in ms; of those that wait for that, as their
        records say it: "object <key>" or "order <id>".  A HASH for "workers": task id -> which
        may run it, as JSON.
        """
        return f"{self.begin}waiting:{reason}"


def slots(object_key: str, places: int) -> list[str]:
    """Return what the places of an object are called; each has a lock of its own.

    The first is called as the object: it is the lock of an object that one task has at a time.
    """
    return [object_key, *(f"{object_key}#{n}" for n in range(2, places + 1))]


def line_of(object_key: str) -> str:
    """Return the object whose place this is: places but the first have a number behind it."""
    return object_key.partition("#")[0]


def text_of(value: bytes) -> str:
    """Return a text that users may have given: what is no UTF-8 in it cannot be told apart."""
    return value.decode("utf-8", "replace")


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
    Record, "task_id", "state", "token", "pid", "claimed_ms", "owner", "stopping_on",
    "is_unsent", "stored", "places",
)  # fmt: skip
_LEASE = Parser(WorkerLease, "worker", "is_dead", "until_ms", "facts", "verdict")
_ENTRY = Parser(HistoryEntry)
_ENDED = Parser(EndedTask, "task_id")

RECORD_FIELDS = ("state", "claim", "resends", "room", *_RECORD.fields)
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
    claim, token, _, *notes = got.get("claim", "0 0 \n\n").split("\n")
    pid, claimed_ms, owner = claim.split(" ", 2)
    noted = dict(note.split(" ", 1) for note in notes)
    running: dict[str, Any] = {}
    if got["state"] == State.RUNNING:
        running = {"token": token, "pid": int(pid), "claimed_ms": int(claimed_ms), "owner": owner}
    return _RECORD.make(
        got,
        task_id=task_id,
        state=State(got["state"]),
        stopping_on=owner if "stopping" in noted else "",
        is_unsent=got.get("resends") == "unsent",
        stored=got.get("used", ""),
        places=int(got.get("room", "0").partition(" ")[0]),
        **running,
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
