"""What the ledger answers of tasks."""

from __future__ import annotations

from typing import final

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import Due

__all__ = [
    "Absent",
    "Alone",
    "Announced",
    "Anothers",
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
    "InUse",
    "NoLease",
    "NotCurrent",
    "NotDead",
    "NotWithdrawn",
    "Opened",
    "Opening",
    "OtherGeneration",
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
    "Stored",
    "Struck",
    "Touched",
    "Troubled",
    "Unknown",
    "Unrecorded",
    "Waiting",
    "Withdrawn",
]


@final
class Announced(Answer):
    """It is noted that Celery was told of the burial."""


@final
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
class Claimed(Answer):
    """An attempt has begun; `attempt` is its fencing token."""

    attempt: int
    losses: int


@final
class Concluding(Answer):
    """The outcome of the attempt is being stored, so somebody may have seen it."""


@final
class Discarded(Answer):
    """The dead letter is removed."""


@final
class Opened(Answer):
    """It is noted that the worker has opened the message, and lives."""


@final
class Opening(Answer):
    """It is noted that the message is about to be opened."""


@final
class Outlived(Answer):
    """The worker that was to stop an attempt is gone, and nothing of it runs."""


@final
class Postponed(Answer):
    """The record is due again later."""


@final
class Queued(Answer):
    """The task waits for its next attempt; `losses` are those counted so far."""

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
class Send(Answer):
    """The message is to be sent by who asked, and by nobody else."""

    message: str
    #: When the record is due again, as `postpone` compares it.
    due_ms: str
    #: The task came back from a worker that died.
    is_suspect: bool


@final
class Settled(Answer):
    """The attempt has its outcome."""


@final
class Spent(Answer):
    """There were too many losses: the task is a dead letter, and Celery has to be told."""

    word = "buried"
    losses: int


@final
class Stored(Answer):
    """The outcome of the attempt is stored, or there is one that stays."""


@final
class Touched(Answer):
    """The attempt's time to run has started anew."""


@final
class Troubled(Answer):
    """The task has a history, which was given no place to be kept; nothing was changed."""


@final
class Waiting(Answer):
    """The record waits until the canvas publishes its id."""


@final
class Withdrawn(Answer):
    """The publication is taken back."""


@final
class Absent(Answer):
    """There is no dead letter."""


@final
class Alone(Answer):
    """The task may have killed a worker, and this worker has another such task already.

    It is sent again from its record.
    """


@final
class Changed(Answer):
    """Something has changed since it was read, so nothing was done."""


@final
class Dead(Answer):
    """The task is a dead letter."""


@final
class Elsewhere(Answer):
    """The result's database cannot be reached from the ledger's; nothing was changed."""


@final
class Ended(Answer):
    """The task or the pass is over, or there is nothing left to do."""


@final
class Exists(Answer):
    """The id is in use: its task is in that state."""

    state: str


@final
class Fenced(Answer):
    """The attempt is not the current one; its task is in that state."""

    state: str


@final
class Gone(Answer):
    """There is no such record."""


@final
class Held(Answer):
    """A worker, the *owner*, runs the task, or has still to stop an attempt of it."""

    owner: str


@final
class InUse(Answer):
    """The id is in use: its task is in that state, since that time in ms of the server's clock."""

    word = "exists"

    state: str
    since_ms: int


@final
class Anothers(Answer):
    """The id is that of another task, of that name, which is in that state since that time."""

    state: str
    since_ms: int
    name: str


@final
class NoLease(Answer):
    """The worker has no lease: it was declared dead, or never registered."""


@final
class NotCurrent(Answer):
    """The attempt is not the current one of its task."""

    word = "fenced"


@final
class NotDead(Answer):
    """The task is no dead letter, but in that state."""

    state: str


@final
class NotWithdrawn(Answer):
    """Somebody has claimed the publication, or relies on it: its task is in that state."""

    word = "kept"
    state: str


@final
class OtherGeneration(Answer):
    """The ledger has another generation than the publication names.  *format*: of its namespace,
    "0" if nobody has told it.
    """

    word = "generation"
    current: str
    format: str


@final
class Parked(Answer):
    """The task is to be sent later, so this message is a late copy."""


@final
class Running(Answer):
    """That worker runs the task."""

    owner: str


@final
class Sealed(Answer):
    """A process died as it read the dead letter's message."""


@final
class Stale(Answer):
    """The message is not the task's current one, or the task was called off."""


@final
class Struck(Answer):
    """An order of an operator keeps the task from running; it is parked until that ends."""

    order: str


@final
class Unknown(Answer):
    """The sender's publication before this one is not known.  It has to use another sender."""


@final
class Unrecorded(Answer):
    """There is no record, and nothing proves that the task has ended."""


@final
class Batch(Answer):
    """Records that are due, the oldest first."""

    word = "due"
    now_ms: int
    dues: tuple[Due, ...]
