"""The values that the package works with: states and small frozen records."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from enum import Enum
from typing import NamedTuple

__all__ = [
    "MOST_PLACES",
    "NO_GROUP",
    "Cause",
    "Claim",
    "ClaimRequest",
    "DeadLetter",
    "Due",
    "EarlyClaim",
    "EndedTask",
    "Group",
    "GroupOfLetters",
    "HistoryEntry",
    "Rate",
    "Reason",
    "Record",
    "Room",
    "State",
    "StoredResult",
    "SweepReport",
    "TaskRef",
]


class State(str, Enum):
    """Where a task's record stands.  A record that is gone has ended."""

    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    DEAD = "dead"


class Reason(str, Enum):
    """Why a task was dead-lettered."""

    FAILED = "failed"
    LOST = "lost"
    TIME_LIMIT = "time_limit"
    REJECTED = "rejected"
    UNPROCESSABLE = "unprocessable"


class Cause(str, Enum):
    """Why an attempt was lost."""

    CHILD_LOST = "child_lost"
    WORKER_LOST = "worker_lost"
    STUCK = "stuck"
    NO_OUTCOME = "no_outcome"


@dataclass(frozen=True)
class StoredResult:
    """A task's result that is to be stored on the ledger's server, in database *db*."""

    key: str
    value: str | bytes
    #: A result that is there already and begins with this text is kept.
    final: str
    #: 0: never.
    expires_seconds: int
    db: int


@dataclass(frozen=True)
class TaskRef:
    """What the ledger needs to know about a task to make its record."""

    id: str
    name: str
    #: The task's own limit, or None for the setting.
    max_losses: int | None = None
    #: Milliseconds an attempt may run without a touch; 0: no limit.
    time_to_run_ms: int = 0


@dataclass(frozen=True)
class Rate:
    """How often attempts may begin: one every *interval_us* microseconds, of all with this key."""

    key: str
    interval_us: int


#: Of one object: each place is a lock, and who asks for one looks at all.
MOST_PLACES = 100


@dataclass(frozen=True)
class Room:
    """The object that a task needs, which so many tasks may have at once."""

    object_key: str
    places: int
    #: The call says so itself, for its task alone.
    is_own: bool = False


@dataclass(frozen=True)
class Claim:
    """One attempt that began.  ``attempt`` is the fencing token."""

    task_id: str
    attempt: int
    worker: str
    token: str
    losses: int = 0
    #: The object that it has locked, as far as the caller knows; the record knows it too.
    object_key: str = ""
    #: How many places that object has; None: not known, or its call alone says so.
    places: int | None = None

    @property
    def is_troubled(self) -> bool:
        """Whether an attempt went before this one, as far as the caller knows."""
        return self.attempt > 1 or self.losses > 0


class EarlyClaim(NamedTuple):
    """A claim that was made as a message was taken, in plain values.  The id is in the message."""

    attempt: int
    losses: int
    worker: str
    token: str
    #: By `clock.now`.
    asked_at: float
    #: Which place of its object the task has since it was published, or its turn came; empty for
    #: none.
    place: str

    def of(self, task_id: str) -> Claim:
        """Return the claim of this task."""
        return Claim(task_id, self.attempt, self.worker, self.token, self.losses)


@dataclass(frozen=True)
class ClaimRequest:
    """A worker's request to begin an attempt of a task, for one of its messages."""

    task: TaskRef
    #: Epoch and generation of the message; empty if it has none.
    epoch: str
    generation: str
    worker: str
    #: Names this delivery of the message.
    token: str
    #: The process that runs the task.
    pid: int
    #: The process has died already.  The task is claimed all the same, and lost at once.
    is_over: bool = False
    #: The ids of orders that may keep the task from running, as far as the worker knows them.
    strikes: tuple[str, ...] = ()
    #: The list that the message goes into as it is, when one of them ends; empty for none.
    list_key: str = ""

    def claim(self, attempt: int, losses: int) -> Claim:
        """Return the claim of the attempt that this request began."""
        return Claim(self.task.id, attempt, self.worker, self.token, losses)


@dataclass(frozen=True)
class HistoryEntry:
    """One line of a task's history: a loss, a retry, a burial, a replay.  `cause` is for people.

    Of an attempt that ended, *owner* is the worker, *pid* its process and *claimed_ms* when it
    began.  Of a replay, *owner* is who did it.
    """

    at_ms: int
    what: str
    attempt: int
    cause: str
    owner: str
    pid: int = 0
    claimed_ms: int = 0


@dataclass(frozen=True)
class EndedTask:
    """What is kept of a task that has ended.  Times are milliseconds on the ledger's clock.

    Attributes:
        outcome: a state of Celery's; of a dead letter "DISCARDED" (by an operator) or "TRIMMED"
            (too many, or too old); or empty.
        by: who ended it, and why; empty for its last attempt.
        attempts: the number of its last attempt.
        owner: the worker of its last attempt; it, *pid* and *claimed_ms* are set if that attempt
            ended the task.
    """

    task_id: str
    name: str
    outcome: str
    by: str
    attempts: int
    losses: int
    published_ms: int
    ended_ms: int
    owner: str = ""
    pid: int = 0
    claimed_ms: int = 0
    history: tuple[HistoryEntry, ...] = ()


@dataclass(frozen=True)
class Record:
    """A task's record as it was read.  Times are milliseconds on the ledger's clock."""

    task_id: str
    state: State
    name: str = ""
    epoch: str = ""
    attempt: int = 0
    losses: int = 0
    max_losses: int | None = None
    owner: str = ""
    token: str = ""
    pid: int = 0
    message: str = ""
    published_ms: int = 0
    claimed_ms: int = 0
    #: Since when it is in its state; of what is queued, since it was last sent.
    since_ms: int = 0
    #: It is queued, and no message of it exists.
    is_unsent: bool = False
    #: A burial still owes Celery its FAILURE, errbacks and chord.
    is_owed: bool = False
    #: It was revoked while it ran.  It ends as revoked unless its attempt has an outcome.
    is_revoked: bool = False
    #: An earlier task with this id may have left a result: the id was not made by Celery, or its
    #: task was a dead letter.
    is_used: bool = False
    #: The worker that is to stop an attempt of it; empty when none is.
    stopping_on: str = ""
    #: Ids of the canvas that replaced it, but for its own; not all of a large one.
    members: tuple[str, ...] = ()
    #: The result that was there when it was last sent again, or replaced (`stored.seen`).
    stored: str = ""
    #: What it waits for: its "time", "object <key>", "rate <key>", "order <id>", "workers"; to be
    #: "alone" in its worker; the last member of its "canvas"; or that a worker "stop"s an attempt,
    #: as it was called off.  Empty for what does not wait.
    waiting_for: str = ""
    #: How many places that object had when it began to wait.
    places: int = 0

    @property
    def in_line_of(self) -> str:
        """The object in whose line it stands; empty for none."""
        kind, _, key = self.waiting_for.partition(" ")
        return key if kind == "object" else ""

    @property
    def goes_first(self) -> bool:
        """Whether it has had its turn in its queue, and waits for a moment of what its reason
        names, such as a rate.  Who stands in a line comes behind what is in the queue.
        """
        kind, _, name = self.waiting_for.partition(" ")
        return bool(name) and kind not in ("object", "order")

    @property
    def is_called_off(self) -> bool:
        """Whether it has ended, but for an attempt that is still to be stopped."""
        return self.waiting_for == "stop"

    @property
    def is_replaced(self) -> bool:
        """Whether the id belongs to the last member of a canvas that replaced the task."""
        return self.waiting_for == "canvas"

    @property
    def is_to_run(self) -> bool:
        """Whether it is queued, or waits for something else than an end."""
        is_bound = self.is_called_off or self.is_replaced
        return self.state in (State.QUEUED, State.WAITING) and not is_bound

    @property
    def claim(self) -> Claim:
        """The claim by which it is running; means nothing in another state."""
        return Claim(self.task_id, self.attempt, self.owner, self.token, self.losses)


@dataclass(frozen=True)
class Due:
    """A record at which somebody must look, and the time that was seen."""

    task_id: str
    due_ms: str


@dataclass(frozen=True)
class Group:
    """What some dead letters have in common."""

    #: As in `Reason`, or of a later version.
    reason: str = ""
    #: What the last loss was put down to: "child_lost, SIGKILL"; empty where it was none.
    cause: str = ""
    #: The type's name; empty where nothing was raised.
    exception: str = ""
    task: str = ""

    @property
    def id(self) -> str:
        """A short name, the same wherever it is asked for; the scripts that bury make it, too."""
        text = "\n".join((self.reason, self.cause, self.exception, self.task))
        return hashlib.sha1(text.encode("utf-8", "backslashreplace")).hexdigest()[:12]

    @classmethod
    def of(cls, text: str) -> Group:
        """Return the group that the ledger has stored."""
        return cls(*text.split("\n", 3))


NO_GROUP = Group()


@dataclass(frozen=True)
class DeadLetter:
    """One entry of the dead letters."""

    task_id: str
    name: str
    reason: Reason
    exception: str
    traceback: str
    attempts: int
    losses: int
    published_ms: int
    buried_ms: int
    message: str
    history: tuple[HistoryEntry, ...] = ()
    is_owed: bool = False
    #: Those that died of the same.
    group: Group = NO_GROUP


@dataclass(frozen=True)
class GroupOfLetters:
    """A group, and how many dead letters it has.  Times are milliseconds on the ledger's clock."""

    group: Group
    count: int
    first_ms: int
    last_ms: int
    #: The latest letter.
    example_id: str
    #: How many were buried at a time that was asked for, or since.
    recent: int = 0


@dataclass
class SweepReport:
    """What one pass did.  Counts; times in seconds."""

    declared: int = 0
    lost: int = 0
    returned: int = 0
    resent: int = 0
    buried: int = 0
    dropped: int = 0
    trimmed: int = 0
    failed: int = 0
    looked_at: int = 0
    oldest_overdue_seconds: float = 0.0
    duration_seconds: float = 0.0
    is_full: bool = False

    def done(self) -> dict[str, float | int | bool]:
        """The counts that are not 0."""
        return {name: value for name, value in asdict(self).items() if value}
