"""What the ledger answers of tasks and of the objects that they hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import Due

__all__ = [
    "Absent",
    "Alone",
    "Announced",
    "Batch",
    "Bequeathed",
    "Buried",
    "Cancelled",
    "Changed",
    "Claimed",
    "Concluding",
    "Dead",
    "Discarded",
    "Elsewhere",
    "Ended",
    "Exists",
    "Fenced",
    "Gone",
    "Held",
    "KeptFor",
    "Locked",
    "LockedBy",
    "NoLease",
    "NotCurrent",
    "NotDead",
    "NotHeld",
    "NotWithdrawn",
    "Opened",
    "Opening",
    "OtherGeneration",
    "OtherObject",
    "Outlived",
    "Parked",
    "Postponed",
    "Queued",
    "Recorded",
    "Released",
    "Replayed",
    "Running",
    "Sealed",
    "Send",
    "Settled",
    "Spent",
    "Stale",
    "Stopping",
    "Touched",
    "Unknown",
    "Unlocked",
    "Unrecorded",
    "Waiting",
    "Withdrawn",
]


@final
class Announced(Answer):
    """What the burial owed Celery has been paid."""


@final
@dataclass(frozen=True)
class Bequeathed(Answer):
    """The canvas may publish the attempt's id."""

    #: A task that had the id before may have left a result.
    is_used: bool


@final
class Buried(Answer):
    """The task is a dead letter."""


@final
class Cancelled(Answer):
    """The task is called off."""


@final
@dataclass(frozen=True)
class Claimed(Answer):
    """An attempt has begun; `attempt` is its fencing token."""

    attempt: int
    losses: int


@final
class Concluding(Answer):
    """The outcome of the attempt may be known already."""


@final
class Discarded(Answer):
    """The dead letter is removed."""


@final
class Locked(Answer):
    """The object is held by who asked."""


@final
class Opened(Answer):
    """It is noted that the message was opened, and that its reader lives."""


@final
class Opening(Answer):
    """It is noted that the message is about to be opened."""


@final
class Outlived(Answer):
    """The worker that was to stop an attempt is gone, and nothing of it runs."""


@final
class Postponed(Answer):
    """Somebody looks again later."""


@final
@dataclass(frozen=True)
class Queued(Answer):
    """The loss is counted, or not, as the losses say; the task waits for its next attempt."""

    losses: int


@final
class Recorded(Answer):
    """The publication is on record."""


@final
class Released(Answer):
    """The attempt is over, and no loss was counted."""


@final
class Replayed(Answer):
    """The dead letter is a queued task."""


@final
@dataclass(frozen=True)
class Send(Answer):
    """The message is to be sent by who asked, and by nobody else."""

    message: str
    #: When somebody must look again, as it is to be compared.
    due_ms: str
    #: It came back from a worker that died.
    is_suspect: bool


@final
class Settled(Answer):
    """The attempt has its outcome."""


@final
@dataclass(frozen=True)
class Spent(Answer):
    """The loss was one too many: the task is a dead letter, and Celery has to be told."""

    word = "buried"
    losses: int


@final
class Touched(Answer):
    """The attempt's time to run has started anew."""


@final
class Unlocked(Answer):
    """The object is anybody's."""


@final
class Waiting(Answer):
    """The record waits for its own id, which a canvas will publish last."""


@final
class Withdrawn(Answer):
    """The publication is taken back."""


@final
class Absent(Answer):
    """There is no dead letter."""


@final
class Alone(Answer):
    """The task may have killed a worker, and this one has to do with another such task; it is sent
    again from its record.
    """


@final
class Changed(Answer):
    """It is not any more as it was seen."""


@final
class Dead(Answer):
    """The task is a dead letter."""


@final
class Elsewhere(Answer):
    """The result's database cannot be reached from the ledger's; nothing was changed."""


@final
class Ended(Answer):
    """It is over: the task, the pass, or what there was to do."""


@final
@dataclass(frozen=True)
class Exists(Answer):
    """The id is that of a task which lives."""

    state: str


@final
@dataclass(frozen=True)
class Fenced(Answer):
    """The attempt is not the current one of its task, which is in that state."""

    state: str


@final
class Gone(Answer):
    """There is no such record."""


@final
@dataclass(frozen=True)
class Held(Answer):
    """The task is that worker's: it runs it, or has still to stop an attempt of it."""

    owner: str


@final
@dataclass(frozen=True)
class KeptFor(Answer):
    """The object is kept for a task that succeeded."""

    word = "kept"
    task_id: str


@final
@dataclass(frozen=True)
class LockedBy(Answer):
    """The object is another's: "<attempt>:<id>"."""

    word = "held"
    value: str

    @property
    def task_id(self) -> str:
        """The task that has it."""
        return self.value.partition(":")[2]


@final
class NoLease(Answer):
    """The worker is not alive, as far as the ledger knows."""


@final
class NotCurrent(Answer):
    """The attempt is not the current one of its task."""

    word = "fenced"


@final
@dataclass(frozen=True)
class NotDead(Answer):
    """The task is no dead letter, but in that state."""

    state: str


@final
class NotHeld(Answer):
    """The object is not this attempt's."""


@final
@dataclass(frozen=True)
class NotWithdrawn(Answer):
    """Somebody has claimed the publication, or relies on it: its task is in that state."""

    word = "kept"
    state: str


@final
@dataclass(frozen=True)
class OtherGeneration(Answer):
    """The ledger has another generation than the publication names."""

    word = "generation"
    current: str


@final
@dataclass(frozen=True)
class OtherObject(Answer):
    """The task has locked another object than was given; nothing was changed.  Nobody hears it but
    who asks again with that one (`call_freeing_lock`).
    """

    word = "object"
    object_key: str


@final
class Parked(Answer):
    """The task is to be sent later: this message is a copy."""


@final
@dataclass(frozen=True)
class Running(Answer):
    """That worker runs the task."""

    owner: str


@final
class Sealed(Answer):
    """Somebody died as he read the dead letter's message."""


@final
class Stale(Answer):
    """The task goes on with another message, or not at all."""


@final
@dataclass(frozen=True)
class Stopping(Answer):
    """The object's task is over, and that worker has still to stop an attempt of it."""

    worker: str


@final
class Unknown(Answer):
    """The sender's publication before this one is not known: it has to begin anew, under another
    name.
    """


@final
class Unrecorded(Answer):
    """There is no record, and nothing proves that the task has ended."""


@final
@dataclass(frozen=True)
class Batch(Answer):
    """Records at which somebody must look, the oldest first."""

    word = "due"
    now_ms: int
    dues: tuple[Due, ...]
