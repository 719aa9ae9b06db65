"""What operators see, each thing declared once: its fields, their units, and its JSON.

The fields of a class are the names of its JSON, which `as_json` makes.  The command line prints
that with ``--json``, the HTTP API documents and answers it, and the admin lays it out.  Times are
those of the ledger's clock, in UTC; None where there is none.  New fields may be added to any of
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from celery_reliable import orders
from celery_reliable.clock import at, moment, span
from celery_reliable.findings import Finding, Limits, ServerFacts
from celery_reliable.leases import nodename_of
from celery_reliable.model import GroupOfLetters
from celery_reliable.orders import OrderKind
from celery_reliable.settings import ReliableConfig

__all__ = [
    "FATES",
    "NOUNS",
    "Acted",
    "Audited",
    "Done",
    "Entry",
    "FullStatus",
    "Group",
    "Groups",
    "Happening",
    "Holder",
    "IfRunning",
    "LastPass",
    "NobodyAlive",
    "Object",
    "Order",
    "Queue",
    "Revoked",
    "Run",
    "RunMember",
    "Running",
    "Status",
    "Task",
    "TaskInFull",
    "Wait",
    "WaitsFor",
    "Worker",
    "WorkerDeath",
    "as_json",
]


def as_json(value: Any) -> Any:
    """Return a thing, or what holds some, as plain JSON values.  A time is ISO 8601, UTC, with
    milliseconds; what is no thing of this module stays as it is.
    """
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(one) for one in value]
    if not is_dataclass(value):
        return value
    is_sparse = isinstance(value, WaitsFor)
    return {
        one.name: as_json(found)
        for one in fields(value)
        if one.metadata.get("json", True)
        for found in [getattr(value, one.name)]
        if not (is_sparse and one.default is not MISSING and found == one.default)
    }


class Wait(str, Enum):
    """What a task waits for."""

    #: Its ETA, in the ledger.
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
class WaitsFor:
    """Why a task waits, or what becomes of it.  The JSON leaves out what does not apply."""

    kind: Wait
    #: The same in words, with names and times.
    sentence: str
    #: Since when it waits or runs.
    since: datetime | None = None
    #: Until when; a sweeper looks at it again then, at the latest.
    until: datetime | None = None
    #: Where its message is.
    queue: str = ""
    #: How many messages are popped before its own, or how many tasks stand in line before it; None:
    #: too many to look.
    before: int | None = None
    #: How many messages wait in that queue.
    depth: int | None = None
    #: The worker that runs it, has fetched it, or is to stop it.
    worker: str = ""
    #: The process that claimed it: that runs it, or is its worker's main process.
    pid: int = 0
    object_key: str = ""
    #: The task that has the object, and since when.
    holder: str = ""
    holder_since: datetime | None = None
    #: Patterns of the workers that may run it.
    workers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A line of a task's flight record."""

    at: datetime | None
    what: str
    attempt: int = 0
    cause: str = ""
    worker: str = ""
    #: The process that had the attempt; 0: it is not known.
    pid: int = 0


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task in a list."""

    task_id: str
    name: str = ""
    #: "waiting", "queued", "running", "waiting" or "dead", as the ledger's README has them; "ended"
    #: if its end was kept, "absent" if nobody knows it.
    state: str
    why: WaitsFor
    #: How many have begun.
    attempts: int = 0
    #: How many were lost and are counted.
    losses: int = 0
    #: Of the last loss, for people.
    cause: str = ""
    #: That its message is for; empty where it cannot be told.
    queue: str = ""
    #: The object that it has, or had when its lock was last looked at.
    object_key: str = ""
    #: What people call the object that it has or waits for: its task, and its id for those who may
    #: see arguments.
    object_name: str = ""
    #: The worker that runs it.
    worker: str = ""
    #: Patterns of the workers that may run it; none: any.
    only_workers: tuple[str, ...] = ()
    #: Patterns of those that get it first.
    prefer_workers: tuple[str, ...] = ()
    #: What its call says in place of the task's own options, but for the workers.
    call: Mapping[str, Any] = field(default_factory=dict)
    #: Of its message.
    priority: int = 0
    #: The run (``task.run_on``) of which it is a member; empty for none.
    run: str = ""
    #: When it was published first.
    published_at: datetime | None = None
    #: Of a dead letter; and the id of its group.
    reason: str = ""
    exception: str = ""
    group: str = ""
    #: How it has ended: a state of Celery's, "DISCARDED" (by an operator) or "TRIMMED" (a dead
    #: letter too many, or too old); empty where unknown.
    outcome: str = ""
    #: Celery's ``origin`` of its message; empty where unknown.
    publisher: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the ledger has a record of it."""
        return self.state not in ("absent", "ended")


@dataclass(frozen=True, kw_only=True)
class TaskInFull(Task):
    """A task with its flight record, the oldest line first: published, started, retried or lost,
    ended.  Of retries that followed one another the last one is told, and how many there were.
    """

    history: tuple[Entry, ...] = ()
    traceback: str = ""
    #: What its message says; whatever may repeat an argument is redacted unless it was asked for.
    args: Any = None
    kwargs: Any = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    properties: Mapping[str, Any] = field(default_factory=dict)
    content_type: str = ""


@dataclass(frozen=True)
class Group:
    """Dead letters that died of the same."""

    #: Its id.
    group: str
    count: int
    task: str
    reason: str
    cause: str
    exception: str
    first_at: datetime | None
    last_at: datetime | None
    #: The id of its latest letter.
    example: str


@dataclass(frozen=True)
class Groups:
    """The groups, the largest first; not all of them where there are thousands."""

    groups: tuple[Group, ...]
    #: How many dead letters there are, in whatever group.
    letters: int


#: What became of tasks and letters, by the fields of `Done` and `Revoked`.
FATES = {
    "ended": "Nobody runs these",
    "running": "These run",
    "dead": "These are dead letters, and stay: discard them",
    "replaced": "These replaced themselves by a canvas, and stay: revoke its members",
    "failed": "Could not be",
    "unsent": "Not sent yet: the sweeper sends these",
    "gone": "Gone already",
}


@dataclass(frozen=True, kw_only=True)
class Acted:
    """What was done to many things, or with a dry run would be."""

    #: Names the act in the audit.
    run: str
    #: To how many it was done; with a dry run, those that fit.
    done: int
    is_dry_run: bool


@dataclass(frozen=True, kw_only=True)
class Done(Acted):
    """What was done to many dead letters: they were replayed or discarded."""

    #: Only letters that were buried before it were meant.
    before: datetime
    #: Those that could not be: nobody can read them.
    failed: int = 0
    #: Those that somebody else replayed or discarded first, or that never were any.
    gone: int = 0
    #: Replayed letters whose message could not be sent; the sweeper sends it.
    unsent: int = 0
    #: All that were meant were reached: neither a limit nor a problem ended it.
    is_whole: bool = True
    #: Where to go on, with the same *before*; empty: at the beginning, or nowhere.
    cursor: str = ""
    #: What went wrong last; empty when nothing did.
    problem: str = ""


class IfRunning(str, Enum):
    """What becomes of an attempt that runs when its task is revoked."""

    #: Its process is asked to stop, by SIGTERM.
    STOP = "stop"
    #: Its process is killed, by SIGKILL: code that does not return to Python hears no SIGTERM.
    KILL = "kill"
    #: It may come to its end.  Should it be lost or try again, there is no other.
    FINISH = "finish"


@dataclass(frozen=True, kw_only=True)
class Revoked(Acted):
    """What became of tasks that were to be revoked, or with a dry run would; by their ids."""

    #: What was to become of those that run.
    if_running: IfRunning
    #: Nobody ran them, and nobody will.
    ended: tuple[str, ...]
    #: They run, and never will again; their workers receive with the next beat which of them to
    #: stop.
    running: tuple[str, ...]
    #: They are dead letters already: these are discarded.
    dead: tuple[str, ...]
    #: They replaced themselves by a canvas: its members are to be revoked.
    replaced: tuple[str, ...]
    #: The ledger knows no such task.
    gone: tuple[str, ...]

    @property
    def failed(self) -> int:
        """How many could not be: they are there, and not to be revoked."""
        return len(self.dead) + len(self.replaced)


@dataclass
class Audited:
    """An act of an operator, as it was noted when it began or when it ended."""

    #: Names the act: its beginning and its end have the same.
    run: str = ""
    #: "begin" or "end".  An act without an end was killed, or goes on.
    phase: str = ""
    #: "replay", "discard", …
    act: str = ""
    #: The user, as the door knows them.
    by: str = ""
    #: What it was to be done to, and how: filter, group, ids, rate, limit.
    about: Mapping[str, Any] = field(default_factory=dict)
    #: To how many it was done.
    done: int = 0
    #: To how many it could not be done.
    failed: int = 0
    #: Why it ended early, or what went wrong last; empty when nothing did.
    problem: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Happening:
    """One event of a task, a worker or a pass."""

    at: datetime | None
    #: The name of the event, as in the log; one of `KINDS`, or of a later version.
    kind: str
    #: Of the task; empty where it is about none.
    name: str
    task_id: str
    #: Its other fields, by their names in ``docs/events.rst``.
    about: Mapping[str, Any]
    #: More of this kind in the same minute are not noted.
    is_last: bool

    @property
    def sentence(self) -> str:
        """What else there is to say: ``attempt 2, losses 1, cause child_lost``."""
        said = []
        for name, value in self.about.items():
            if isinstance(value, Mapping):
                said += [f"{key} {one}" for key, one in value.items()]
            elif value is False:
                said.append(f"not {name.removeprefix('is_')}")
            elif value not in (None, "", 0) and value is not True:
                said.append(f"{name} {value}")
        if self.is_last:
            said.append("more of these in this minute are not noted")
        return ", ".join(said)


@dataclass(frozen=True)
class Holder:
    """A task that has a place of an object, or for which that is kept."""

    #: Which, from 1 on.
    place: int
    task_id: str
    name: str = ""
    #: The attempt that took the place; 0: it was taken as the task was published.
    attempt: int = 0
    #: Of the task; empty for one that has ended.
    state: str = ""
    #: Since when at the earliest: the attempt's beginning, or the publication.
    since: datetime | None = None
    #: The worker that runs it.
    worker: str = ""

    def __str__(self) -> str:
        where = f", on {nodename_of(self.worker)}" if self.worker else ""
        since = f", since {at(self.since)}" if self.since else ""
        return f"{self.name}[{self.task_id}], {self.state or 'has ended'}{since}{where}"


@dataclass(frozen=True, kw_only=True)
class Object:
    """An object that one task, or as many as it has places, have at a time; without a holder it is
    free.
    """

    #: The name of its lock: a digest of the task's name and the object's id.
    object_key: str
    #: What people call it: its task, and its id for those who may see arguments; the key where
    #: nobody knows.
    object_name: str
    #: For how long the object is kept yet after a success; None: tasks have it.
    kept_seconds: float | None
    #: How many tasks may have it at a time, as far as is known.
    places: int
    #: By their places.
    holders: tuple[Holder, ...]
    #: How many stand in its line (``on_conflict="wait"``); of those behind the first hundred some
    #: may have ended.
    in_line: int
    #: The first hundred of these tasks, in their order.
    waiters: tuple[str, ...]
    #: There may be more that wait.
    has_more: bool

    @property
    def taken(self) -> str:
        """How many of its places are taken, for people."""
        return f"{len(self.holders)} of {self.places} places taken"


@dataclass(frozen=True)
class Running:
    """A task that a worker runs."""

    task_id: str
    name: str
    attempt: int
    #: The process that claimed it: that runs it, or is the worker's main process.
    pid: int
    #: None: the record does not say.
    since: datetime | None

    def __str__(self) -> str:
        return f"{self.name}[{self.task_id}]" + (f" since {at(self.since)}" if self.since else "")


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker that has a lease, or had one."""

    #: Its id: new for every start, and when it comes back from the dead.
    worker: str
    #: Its name for people.
    nodename: str
    #: "alive"; "lapsed": its lease has run out, and no pass has declared it dead yet; "dead": what
    #: it held is being recovered.
    state: str
    #: Of its lease; negative: the lease ran out so long ago.
    seconds_left: float
    #: Why it was declared dead: "lapsed" or "connection"; else empty.
    cause: str
    #: It renewed its lease after it had been declared dead.
    thawed: bool
    registered_at: datetime | None
    #: How many reliable tasks it runs.
    claims: int
    #: Those tasks, the longest first.
    runs: tuple[Running, ...]
    #: The task among those that may have killed another worker; empty for none.
    suspect: str
    #: Whether its death shows by the end of its connection, and why not.
    witness: bool
    no_witness: str
    #: Of its main process.
    pid: int
    #: The kind of its pool: "prefork", "solo", "thread", "gevent".
    pool: str
    #: That it consumes; empty too while that is not known.
    queues: tuple[str, ...]
    #: How many tasks it runs at once at the most; None: not known, as before its first heartbeat.
    slots: int | None
    #: How many it runs, of any base, by its last heartbeat.
    running: int | None
    #: When its main loop turned last, by its last heartbeat.
    turned_at: datetime | None
    #: When it began a task last, or started.
    begun_at: datetime | None
    #: Its shutdown has begun: it finishes what it runs.
    leaving: bool
    #: An operator's order lets it take nothing new.
    drained: bool = False

    @property
    def idle_slots(self) -> int | None:
        """How many more tasks it could run at once; None: not known."""
        return (
            None if self.slots is None or self.running is None else max(0, self.slots - self.busy)
        )

    @property
    def busy(self) -> int:
        """How many tasks it runs, of any base."""
        return max(self.running or 0, self.claims)

    @property
    def condition(self) -> str:
        """Its state for people, who see here, too, that it is leaving or drained."""
        if self.state != "alive":
            return self.state
        return "leaving" if self.leaving else "drained" if self.drained else "alive"


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A queue; None for what the broker does not tell."""

    name: str
    #: How many messages wait.
    depth: int | None
    #: For how long the oldest waits that is among the next to be popped; None, too, where nothing
    #: is known of what waits (tasks of other bases).
    oldest_seconds: float | None = None
    #: Names of living workers that say that they consume it.
    workers: tuple[str, ...] = ()
    #: How many consumers the broker knows; a Redis knows none.
    consumers: int | None = None
    #: An order lets nobody take from it.
    paused: bool = False

    @property
    def waiting(self) -> str:
        """How many messages wait, for people, who see here, too, that nobody may take them."""
        depth = "?" if self.depth is None else str(self.depth)
        return f"{depth}, paused" if self.paused else depth

    @property
    def oldest(self) -> str:
        """For how long the oldest waits, for people; empty where that is not known."""
        return "" if self.oldest_seconds is None else span(self.oldest_seconds)

    @property
    def consumed_by(self) -> str:
        """Who consumes it, for people: names, or how many."""
        names = ", ".join(self.workers)
        return names or ("" if self.consumers is None else f"{self.consumers} consumers")


_ORDERED = {OrderKind.PAUSE: "paused", OrderKind.STRIKE: "struck", OrderKind.DRAIN: "drained"}
#: What an order names.
NOUNS = {OrderKind.PAUSE: "queue", OrderKind.STRIKE: "task", OrderKind.DRAIN: "worker"}


@dataclass(frozen=True, kw_only=True)
class Order:
    """What an operator has paused, struck or drained."""

    id: str
    kind: OrderKind
    #: The queue, the task or the worker; may be a pattern.
    target: str
    #: Of a strike: what alone is meant.
    object_id: str | None
    #: What runs there is stopped, too.
    stops: bool
    by: str
    why: str
    given_at: datetime | None
    #: None: until it is resumed.
    until: datetime | None
    #: Whether it holds; else it is over, and a pass sends what waits for it.
    in_force: bool
    #: How many tasks wait for it; of a strike alone.
    waiting: int = 0
    #: How many living workers know of it.
    heard: int = 0

    @classmethod
    def of(
        cls, order: orders.Order, *, in_force: bool = True, waiting: int = 0, heard: int = 0
    ) -> Order:
        """Return an order as the ledger has it, with what is known of who obeys."""
        return cls(
            id=order.id,
            kind=order.kind,
            target=order.target,
            object_id=order.object_id,
            stops=order.is_stop,
            by=order.by,
            why=order.why,
            given_at=moment(order.given_ms),
            until=moment(order.until_ms),
            in_force=in_force,
            waiting=waiting,
            heard=heard,
        )

    def names(self, name: str) -> bool:
        """Whether it names a queue, a task or a worker."""
        return orders.Order(self.id, self.kind, self.target).names(name)

    @property
    def sentence(self) -> str:
        """What it does, by whom, why, and until when, as a part of a sentence."""
        of = "" if self.object_id is None else f" (object {self.object_id})"
        why = f": {self.why}" if self.why else ""
        until = f"until {at(self.until)}" if self.until else "until it is resumed"
        if not self.in_force:
            until = "and it is over: what waits for it is being sent"
        return (
            f"{NOUNS[self.kind]} {self.target}{of} is {_ORDERED[self.kind]} since "
            f"{at(self.given_at)}, {until}, by {self.by or 'somebody'} (order {self.id}){why}"
        )


@dataclass(frozen=True)
class RunMember:
    """One member of a run."""

    task_id: str
    #: The name of the worker that it has, or had; empty while it waits for one.
    worker: str
    #: Of its task: "waiting" while it waits for a worker, "queued", "running", "dead"; "ended" when
    #: the ledger has no record of it any more.
    state: str
    #: Celery's state of its result, of one that has ended; empty where none is kept.
    result: str = ""


@dataclass(frozen=True)
class Run:
    """One task on several workers."""

    run: str
    name: str
    #: Patterns of the workers that it may run on; none: any.
    only_workers: tuple[str, ...]
    begun_at: datetime | None
    #: How many members are in each state.
    states: Mapping[str, int]
    #: How many members wait for a worker that no other member has.
    missing: int
    #: How it stands, in words.
    sentence: str
    members: tuple[RunMember, ...]


@dataclass(frozen=True)
class NobodyAlive:
    """Tasks that wait for the same named workers."""

    #: Patterns of the workers that may run them; none: any.
    only_workers: tuple[str, ...]
    #: They are members of runs, which wait for workers that no other member has.
    is_run: bool
    #: How many tasks, as far as was looked.
    count: int
    #: Names of such workers that live nevertheless: they are drained, which stands behind the name,
    #: have no queue of their own, are leaving, or have only just started.
    alive: tuple[str, ...]
    #: Since when the longest of some of them waits; None: not known.
    since: datetime | None

    @property
    def sentence(self) -> str:
        """How many wait for whom, as a part of a sentence."""
        named = ", ".join(self.only_workers) or "any worker"
        run = " that no other member of a run has" if self.is_run else ""
        return f"{self.count} for {named}{run} (alive: {', '.join(self.alive) or 'none'})"


@dataclass(frozen=True)
class LastPass:
    """The sweeper's last pass."""

    #: When it ended, or began if it runs; None: there was none.
    ended_at: datetime | None = None
    #: The same as an age.
    seconds_ago: float | None = None
    #: What it did, as `SweepReport` has it; empty: nothing is known of it.
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerDeath:
    """A worker that was declared dead lately."""

    worker: str
    cause: str
    at: datetime | None
    #: How many tasks it ran.
    claims: int


@dataclass(frozen=True, kw_only=True)
class Status:
    """A namespace at one moment, and what is wrong with it."""

    at: datetime
    app: str
    namespace: str
    ledger: ServerFacts
    last_pass: LastPass
    #: In force, or over while what waits for them is sent.
    orders: tuple[Order, ...]
    #: How many are "queued", "waiting", "running", "waiting", "owed", "dead".
    tasks: Mapping[str, int]
    #: Whether those are counted; else what waits is estimated by a sample.
    is_exact: bool
    #: How many tasks wait as none of the workers that they name is alive.
    waiting_for_worker: int
    #: The same by the workers for which they wait, the most first.
    nobody_alive: tuple[NobodyAlive, ...]
    dead_by_reason: Mapping[str, int]
    #: How many are alive, lapsed and dead.
    workers_by_state: Mapping[str, int]
    workers: tuple[Worker, ...]
    #: How many tasks living workers run at once at the most, of those that tell.
    slots: int
    #: What runs and waits, for each slot: above 1 more workers would help.  None without a slot.
    saturation: float | None
    deaths: tuple[WorkerDeath, ...]
    queues: tuple[Queue, ...]
    #: How many tasks the ledger holds back, by what they wait for ("object", "rate", "order",
    #: "worker") and by their names.
    held_back: Mapping[str, Mapping[str, int]]
    #: Why the queues could not be looked at; empty if they were.
    broker_problem: str
    #: Errors first.
    findings: tuple[Finding, ...] = ()

    @property
    def waiting(self) -> int:
        """How many messages wait in queues; where the broker does not tell, records."""
        depths = [one.depth for one in self.queues if one.depth is not None]
        return sum(depths) if depths else self.tasks["queued"]


#: Of a field that is no part of the JSON.
_HIDDEN = {"json": False}


@dataclass(frozen=True, kw_only=True)
class FullStatus(Status):
    """A status with what findings and metrics look at besides, which is no part of the JSON."""

    #: The dead letters by what they died of, as far as that is known, with how many of each are
    #: recent: buried at most ``limits.recent_seconds`` ago.
    groups: tuple[GroupOfLetters, ...] = field(metadata=_HIDDEN)
    #: How many events there were, by kind, name of the task, cause and reason.
    totals: Mapping[tuple[str, ...], int] = field(metadata=_HIDDEN)
    config: ReliableConfig = field(metadata=_HIDDEN)
    #: From when on something is wrong.
    limits: Limits = field(metadata=_HIDDEN)
    #: How many dead letters were deleted since there were more than are kept, and when the last of
    #: those was; None: none ever was.
    trimmed: int = field(metadata=_HIDDEN)
    trimmed_at: datetime | None = field(metadata=_HIDDEN)
