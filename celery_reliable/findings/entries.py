"""What an entry of the table of findings is, how facts are looked at, and the facts themselves.

Nothing here connects to a server.  None: it is not known, and gives no finding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

from celery_reliable.exceptions import refuse
from celery_reliable.leases import too_long_seconds
from celery_reliable.log import logger

__all__ = [
    "NO_START",
    "SUPPORTED",
    "Entry",
    "Finding",
    "Limits",
    "Running",
    "Seen",
    "ServerFacts",
    "Setup",
    "TaskSetup",
    "WorkerSetup",
    "counted",
    "listed",
    "log_finding",
    "look",
    "raise_for",
    "worst_first",
]

F = TypeVar("F")

#: What a predicate returns: nothing, True, or the values of the texts, once for each finding.  A
#: value ``severity`` takes the place of the entry's.
Seen = bool | None | Mapping[str, Any] | Iterable[Mapping[str, Any]]
NO_START = "No worker starts, and publishing a task raises."
_LEVELS = ("error", "warning", "info")


#: The releases of other packages that fit, as in this package's metadata: the least, and the first
#: that is too new.
SUPPORTED: Final = {"celery": ("5.6.3", "6"), "kombu": ("5.7", "6"), "redis": ("6.4", "")}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or may be.

    Attributes:
        code: such as "E005"; it stays.
        name: the same in words.
        severity: with an "error" the package must not start, or does not work; a "warning" will
            hurt; an "info" is worth knowing.
        message: what is the case, with names and values.
        hint: what to change.
        ignored: what happens if nobody does.
    """

    code: str
    name: str
    severity: Literal["error", "warning", "info"]
    message: str
    hint: str
    ignored: str


@dataclass(frozen=True)
class Entry(Finding, Generic[F]):
    """One finding, before anybody has looked.

    Its ``message`` and its ``hint`` have places for the values that the predicate returns.  Its
    ``severity``, which is the letter of its ``code``, is the worst that the finding can have: the
    predicate may say another.

    Attributes:
        predicate: looks at facts; None: whoever tries it and fails says so by `found`.
    """

    predicate: Callable[[F], Seen] | None = None

    def found(self, **values: Any) -> Finding:
        """Return the finding with these values."""
        severity = values.pop("severity", self.severity)
        message, hint = self.message.format(**values), self.hint.format(**values)
        return Finding(self.code, self.name, severity, message, hint, self.ignored)


def look(entries: Iterable[Entry[F]], facts: F) -> list[Finding]:
    """Return what *entries* find in facts."""
    found = []
    for entry in entries:
        seen = entry.predicate(facts) if entry.predicate is not None else None
        if seen is True:
            seen = {}
        if isinstance(seen, Mapping):
            seen = [seen]
        found += [entry.found(**values) for values in seen or ()]
    return found


def raise_for(findings: Iterable[Finding]) -> list[Finding]:
    """Raise for the errors among `findings`, all in one; return the warnings.

    Raises:
        ConfigurationError: with one paragraph per error.
    """
    found = list(findings)
    refuse(f"{item.message} {item.hint}" for item in found if item.severity == "error")
    return found


def worst_first(found: Iterable[Finding]) -> list[Finding]:
    """Return findings without repetitions, errors first."""
    return sorted(dict.fromkeys(found), key=lambda one: _LEVELS.index(one.severity))


def listed(names: Sequence[str], at_most: int = 5) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")


def counted(number: int, noun: str) -> str:
    """Return "1 task", "2 tasks", "2 entries"."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def log_finding(finding: Finding) -> None:
    """Write a finding into the log."""
    logger.log(
        logging.INFO if finding.severity == "info" else logging.WARNING,
        "finding code=%s check=%s severity=%s message=%s hint=%s",
        finding.code,
        finding.name,
        finding.severity,
        finding.message,
        finding.hint,
        stacklevel=2,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What is known of the Redis that holds the ledger.

    Attributes:
        url: where it is, without a password.
        version: such as "6.2.14".
        role: "master" or "slave", in Redis's words.
        used_memory: in bytes.
        maxmemory: the limit in bytes; 0 for none.
        maxmemory_policy: what happens at the limit.
        appendonly: whether an append-only file is written.
        appendfsync: when that is forced to the disk: "always", "everysec" or "no".
        save: the snapshot rule as `CONFIG GET save` gives it; empty for none.
        is_cluster: whether it is a node of a Redis Cluster.
        replicas: how many follow it.
        min_replicas: how many replicas must be connected for it to take writes.
        has_sentinel: whether Sentinels say which server it is.
    """

    url: str = ""
    version: str | None = None
    role: str | None = None
    used_memory: int | None = None
    maxmemory: int | None = None
    maxmemory_policy: str | None = None
    appendonly: bool | None = None
    appendfsync: str | None = None
    save: str | None = None
    is_cluster: bool | None = None
    replicas: int | None = None
    min_replicas: int | None = None
    has_sentinel: bool = False

    @property
    def fill(self) -> float | None:
        """How much of its memory it has used, from 0 to 1; None without a limit."""
        if not self.maxmemory or self.used_memory is None:
            return None
        return self.used_memory / self.maxmemory

    @classmethod
    def from_info(
        cls, info: Mapping[str, object], *, url: str = "", has_sentinel: bool = False
    ) -> ServerFacts:
        """Read the facts from `INFO`, and from `CONFIG GET`, which not every server allows."""
        told = {name: str(value) for name, value in info.items() if value is not None}
        number = {name: int(value) for name, value in told.items() if value.isdecimal()}
        append = told.get("aof_enabled", told.get("appendonly"))
        cluster = told.get("cluster_enabled")
        return cls(
            url=url,
            version=told.get("redis_version"),
            role=told.get("role"),
            used_memory=number.get("used_memory"),
            maxmemory=number.get("maxmemory"),
            maxmemory_policy=told.get("maxmemory_policy") or told.get("maxmemory-policy"),
            appendonly=None if append is None else append in ("1", "yes"),
            appendfsync=told.get("appendfsync"),
            save=told.get("save"),
            is_cluster=None if cluster is None else cluster == "1",
            replicas=number.get("connected_slaves"),
            min_replicas=number.get("min-replicas-to-write"),
            has_sentinel=has_sentinel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """How a task is set up; times in seconds.

    Attributes:
        has_row: it works on a row of a Django project.
        idle_options: options of ours that a task with another base was given.
    """

    name: str
    is_reliable: bool = True
    acks_late: bool = False
    is_requeued_when_lost: bool = False
    time_limit: float | None = None
    time_to_run_seconds: float | None = None
    once_for_seconds: float | None = None
    has_row: bool = False
    idle_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """How a worker is set up, or would be by the settings.

    Attributes:
        where: its name, or words for it.
        pool: "prefork", "thread", "solo", "gevent", or another's module.
        time_limit: Celery's, in seconds, for tasks without one of their own.
        visibility_seconds: the visibility timeout of its broker's transport.
        version: of this package.
        versions: of other packages.
        clock_ahead_seconds: its clock against the server's; None: not known.
        no_witness: why only the end of its lease shows its death; empty: it shows at once.
    """

    where: str
    pool: str = ""
    time_limit: float | None = None
    visibility_seconds: float | None = None
    version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    clock_ahead_seconds: float | None = None
    no_witness: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How an app is set up.

    Attributes:
        config: our own settings (`settings.ReliableConfig`, which is made on a floor above this
            one).
        scheme: of the broker's URL.
        is_redis: whether the broker is a Redis.
        is_unprotected: the broker lives in one process, and no ledger is named.
        is_eager: tasks run where they are called, so that nothing is published.
        start_method: how the processes of a prefork pool are started.
        is_default_method: it is the default of the platform.
        here: this process: its version, those of other packages, and its clock.
        tasks: those of the app.
        workers: the living ones; where there are none, what the settings would make.
        schedule: beat's: the names of tasks by the names of entries.
        is_schedule_elsewhere: whether there may be more entries, in a database.
        results_expire_seconds: 0: never; None: there are no results, or nobody knows.
    """

    config: Any
    scheme: str
    is_redis: bool
    is_unprotected: bool
    is_eager: bool = False
    start_method: str = "fork"
    is_default_method: bool = False
    here: WorkerSetup = field(default_factory=lambda: WorkerSetup(where="this host"))
    tasks: Sequence[TaskSetup] = ()
    workers: Sequence[WorkerSetup] = ()
    schedule: Mapping[str, str] = field(default_factory=dict)
    is_schedule_elsewhere: bool = False
    results_expire_seconds: float | None = None

    @property
    def ours(self) -> list[TaskSetup]:
        """The reliable tasks."""
        return [one for one in self.tasks if one.is_reliable]

    @property
    def taking(self) -> dict[str, float | None]:
        """For how many seconds each reliable task may run without a `touch`; None: nothing says."""
        limits = [one.time_limit for one in self.workers if one.time_limit]
        of_workers = max(limits, default=None)
        return {
            one.name: min(
                filter(None, (one.time_to_run_seconds, one.time_limit)), default=of_workers
            )
            for one in self.ours
        }


@dataclass(frozen=True)
class Limits:
    """From when on something is wrong.

    Attributes:
        oldest_seconds: for so long a task may wait in its queue.
        recent_seconds: so long ago a death or a burial is still reported.
        fill: so much of the ledger's memory may be used, from 0 to 1.
        run_seconds: for so long an attempt may run.
        failures: so many tasks that failed for good within *recent_seconds* are many; ten times as
            many are an error.
    """

    oldest_seconds: float = 300.0
    recent_seconds: float = 600.0
    fill: float = 0.9
    run_seconds: float = 1200.0
    failures: int = 100


@dataclass(frozen=True)
class Running:
    """A namespace at one moment, and the limits by which it is judged."""

    status: Any
    limits: Limits

    @property
    def long_seconds(self) -> float:
        """The seconds without progress after which a component is reported as stalled."""
        return too_long_seconds(self.status.config.lease_seconds, self.status.config.sweep_seconds)

    @property
    def alive(self) -> list[Any]:
        """The workers that live."""
        return [one for one in self.status.workers if one.state == "alive"]

    def age(self, since: datetime | None) -> float:
        """Return for how many seconds something lasts; 0 where its beginning is not known."""
        return float((self.status.at - since).total_seconds()) if since else 0.0
