"""What a task waits for: the kind, a sentence for people, and the same as data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, cast

from celery_reliable.operations import shapes
from celery_reliable.operations.times import iso

__all__ = ["Wait", "Why"]


class Wait(str, Enum):
    """What a task waits for."""

    #: Its ETA: in the ledger, or in a worker that was delivered it.
    ETA = "eta"
    #: The pause before its next retry.
    RETRY = "retry"
    #: An operator has struck it.
    ORDER = "order"
    #: An object that another task has.
    OBJECT = "object"
    #: A worker that may run it: none of those that it names is alive.
    WORKER = "worker"
    #: Its moment, as its rate is limited.
    RATE = "rate"
    #: Its turn in its queue.
    QUEUE = "queue"
    #: A worker that was delivered it and has not begun it.
    FETCHED = "fetched"
    #: To be sent: no message of it is on its way.
    RESEND = "resend"
    #: A worker that runs no other suspect: it ran in a worker that died.
    ALONE = "alone"
    #: An attempt that was taken from its worker, and is being stopped.
    STOPPING = "stopping"
    #: The end of the attempt that runs.
    RUNNING = "running"
    #: The canvas that took its place.
    CANVAS = "canvas"
    #: The end of what still runs of it: it was called off itself.
    CALLED_OFF = "called_off"
    #: Celery to be told that it is a dead letter.
    OWED = "owed"
    #: An operator: it is a dead letter.
    DEAD = "dead"
    #: Nothing: it has ended.
    ENDED = "ended"
    #: Nothing: nobody knows it.
    ABSENT = "absent"


@dataclass(frozen=True)
class Why:
    """Why a task waits.  What is empty or None does not apply, or is not known.

    Attributes:
        kind: what for.
        sentence: the same in words, with names and times; for people.
        since_ms: since when it waits or runs, by the server's clock.
        until_ms: until when, at the latest looked at again.
        queue: where its message is.
        before: how many messages are popped before its own, or how many tasks stand in line before
            it; None: too many to look.
        depth: how many messages wait in that queue.
        worker: who runs it, has fetched it, or is to stop it.
        pid: of the process that claimed it: it runs it, or is its worker's main process.
        object_key: what it waits for.
        holder: the task that has the object.
        holder_since_ms: since when.
        workers: patterns of the workers that may run it.
    """

    kind: Wait
    sentence: str
    since_ms: int = 0
    until_ms: int = 0
    queue: str = ""
    before: int | None = None
    depth: int | None = None
    worker: str = ""
    pid: int = 0
    object_key: str = ""
    holder: str = ""
    holder_since_ms: int = 0
    workers: tuple[str, ...] = ()

    def as_dict(self) -> shapes.WaitsFor:
        """What applies, as plain JSON values."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            is_zero = value == 0 and one.name not in ("before", "depth")
            if value is None or value in ("", ()) or is_zero:
                continue
            if one.name.endswith("_ms"):
                found[one.name.removesuffix("_ms")] = iso(value)
            elif isinstance(value, tuple):
                found[one.name] = [*value]
            else:
                found[one.name] = value.value if isinstance(value, Enum) else value
        return cast(shapes.WaitsFor, found)
