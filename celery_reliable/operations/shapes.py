"""What the views look like as JSON.

Each is what a view of this package returns for programs: the command line prints them with
``--json``, and the HTTP API documents and answers them.  Times are ISO 8601, UTC; None where there
is none.  New names may be added to any of them.
"""

from __future__ import annotations

from typing import Any, TypedDict

from celery_reliable.findings import FindingView
from celery_reliable.operations.letter_shapes import (
    DeadLetter,
    DeadLetterInFull,
    Done,
    Group,
    Groups,
    Killed,
    LetterEntry,
    Replayed,
)
from celery_reliable.operations.object_shapes import Holder, NobodyAlive, Object, TaskPlaces

__all__ = [
    "Audited",
    "DeadLetter",
    "DeadLetterInFull",
    "Done",
    "Entry",
    "Group",
    "Groups",
    "Happened",
    "Happening",
    "Holder",
    "Killed",
    "LastPass",
    "LetterEntry",
    "NobodyAlive",
    "Object",
    "Order",
    "Queue",
    "Replayed",
    "Revoked",
    "Running",
    "Server",
    "Status",
    "StatusWithFindings",
    "Task",
    "TaskInFull",
    "TaskPlaces",
    "Throughput",
    "WaitsFor",
    "Worker",
    "WorkerDeath",
]


class _Waits(TypedDict):
    kind: str
    sentence: str


class WaitsFor(_Waits, total=False):
    """Why a task waits, or what becomes of it: what applies."""

    since: str
    until: str
    queue: str
    before: int
    depth: int
    worker: str
    pid: int
    object_key: str
    holder: str
    holder_since: str
    workers: list[str]


class Entry(TypedDict):
    """A line of a task's flight record."""

    at: str | None
    what: str
    attempt: int
    cause: str
    worker: str
    pid: int
    claimed_at: str | None


class Task(TypedDict):
    """A task in a list."""

    task_id: str
    name: str
    state: str
    why: WaitsFor
    attempts: int
    losses: int
    cause: str
    queue: str
    object_key: str
    #: What people call the object that it has or waits for: its task, and its id for who may see
    #: arguments.
    object_name: str
    worker: str
    only_workers: list[str]
    prefer_workers: list[str]
    #: What its call says in place of the task's own options.
    call: dict[str, Any]
    priority: int
    run: str
    published_at: str | None
    reason: str
    exception: str
    outcome: str
    publisher: str


class TaskInFull(Task):
    """A task with its flight record."""

    history: list[Entry]


class Running(TypedDict):
    """A task that a worker runs."""

    task_id: str
    name: str
    attempt: int
    pid: int
    since: str | None


class Worker(TypedDict):
    """A worker that has a lease, or had one."""

    worker: str
    nodename: str
    state: str
    seconds_left: float
    cause: str
    thawed: bool
    registered_at: str | None
    claims: int
    runs: list[Running]
    unacked: int | None
    suspect: str
    opening: str
    witness: bool
    no_witness: str
    pid: int
    pool: str
    queues: list[str]
    own_queue: str
    slots: int | None
    running: int | None
    turned_at: str | None
    begun_at: str | None
    leaving: bool
    drained: bool


class Queue(TypedDict):
    """A queue; None for what the broker does not tell."""

    name: str
    depth: int | None
    by_priority: dict[str, int]
    oldest_since: str | None
    oldest_seconds: float | None
    workers: list[str]
    consumers: int | None
    #: An order lets nobody take from it.
    paused: bool


class Server(TypedDict):
    """The Redis that holds the ledger; None for what it does not tell."""

    url: str
    version: str | None
    role: str | None
    used_bytes: int | None
    maxmemory_bytes: int | None
    maxmemory_policy: str | None
    appendonly: bool | None
    appendfsync: str | None
    save: str | None


class LastPass(TypedDict):
    """The sweeper's last pass."""

    ended_at: str | None
    seconds_ago: float | None
    report: dict[str, Any]


class WorkerDeath(TypedDict):
    """A worker that was declared dead lately."""

    worker: str
    cause: str
    at: str | None
    claims: int


class Order(TypedDict):
    """What an operator has paused, struck or drained."""

    id: str
    kind: str
    target: str
    #: Of a strike: what alone is meant.
    object_id: str | None
    #: What runs there is stopped, too.
    stops: bool
    by: str
    why: str
    given_at: str | None
    #: None: until it is resumed.
    until: str | None
    in_force: bool
    #: How many tasks wait for it.
    parked: int
    #: How many living workers know of it.
    heard: int
    notes: list[str]


class Throughput(TypedDict):
    """How many attempts a minute were processed, failed and were lost, in so many minutes."""

    since: str | None
    minutes: int
    processed: float
    failed: float
    lost: float


class Status(TypedDict):
    """A namespace at one moment."""

    at: str | None
    app: str
    namespace: str
    ledger: Server
    last_pass: LastPass
    #: In force, or over and letting go what waits for them.
    orders: list[Order]
    tasks: dict[str, int]
    is_exact: bool
    waiting_for_worker: int
    nobody_alive: list[NobodyAlive]
    dead_by_reason: dict[str, int]
    workers_by_state: dict[str, int]
    workers: list[Worker]
    slots: int
    saturation: float | None
    deaths: list[WorkerDeath]
    queues: list[Queue]
    limited: dict[str, int]
    in_line: dict[str, int]
    places: list[TaskPlaces]
    broker_problem: str
    #: In the last ten minutes, the last hour and the last day.
    throughput: list[Throughput]


class StatusWithFindings(Status):
    """A namespace at one moment, and what is wrong with it."""

    findings: list[FindingView]


class RunMember(TypedDict):
    """One member of a run."""

    task_id: str
    worker: str
    state: str
    result: str


class Run(TypedDict):
    """One task on several workers."""

    run: str
    name: str
    only_workers: list[str]
    begun_at: str | None
    states: dict[str, int]
    missing: int
    sentence: str
    members: list[RunMember]


class Moved(TypedDict):
    """What became of tasks that were to run elsewhere, or with a dry run would; by their ids."""

    run: str
    workers: list[str]
    done: int
    sent: list[str]
    stopped: list[str]
    stays: list[str]
    refused: list[str]
    gone: list[str]
    is_dry_run: bool


class Revoked(TypedDict):
    """What became of tasks that were to be revoked, or with a dry run would; by their ids."""

    run: str
    if_running: str
    done: int
    ended: list[str]
    running: list[str]
    dead: list[str]
    replaced: list[str]
    gone: list[str]
    is_dry_run: bool


class Audited(TypedDict):
    """An act of an operator, when it began or when it ended."""

    run: str
    phase: str
    act: str
    by: str
    about: dict[str, Any]
    done: int
    failed: int
    problem: str
    at: str | None


class Happening(TypedDict):
    """One event of a task, a worker or a pass."""

    at: str | None
    kind: str
    name: str
    task_id: str
    about: dict[str, Any]
    is_last: bool
    cursor: str


class Happened(TypedDict):
    """Some of what happened, the oldest first."""

    items: list[Happening]
    cursor: str
    is_all: bool
