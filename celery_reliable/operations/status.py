"""All of it in one value: what waits, runs and failed, who sweeps, and what the servers say."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import LedgerRefused, ReliableError
from celery_reliable.findings import Limits, ServerFacts
from celery_reliable.ledger import Ledger
from celery_reliable.log import as_shown
from celery_reliable.model import GroupOfLetters
from celery_reliable.operations import shapes
from celery_reliable.operations.depths import Queues, QueueView
from celery_reliable.operations.status_waiting import Waiting, look_at_waiting
from celery_reliable.operations.stop_button import OrderView, obeyed_by
from celery_reliable.operations.throughput import Throughput, look_at_throughput
from celery_reliable.operations.times import iso
from celery_reliable.operations.workers import Workers, WorkerView
from celery_reliable.orders import OrderKind
from celery_reliable.recovery import BrokerView

__all__ = ["RECENT_SECONDS", "Death", "LastPass", "Server", "Status", "look_at_status"]

#: So long ago a death or a burial is recent.
RECENT_SECONDS = Limits.recent_seconds
#: New letters whose group is found out at most.
_CAUGHT_UP_AT_ONCE = 2_000


@dataclass(frozen=True)
class LastPass:
    """The sweeper's last pass.

    Attributes:
        ended_ms: when it ended, or began if it runs; 0: there was none.
        seconds_ago: the same as an age; None: there was none.
        report: what it did, as `SweepReport.as_dict` has it; empty: nothing is known of it.
    """

    ended_ms: int = 0
    seconds_ago: float | None = None
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Death:
    """A worker that was declared dead lately."""

    worker: str
    cause: str
    at_ms: int
    #: How many tasks it ran.
    claims: int


@dataclass(frozen=True)
class Server:
    """The Redis that holds the ledger.  None: it does not tell."""

    url: str
    facts: ServerFacts
    used_bytes: int | None = None

    @property
    def fill(self) -> float | None:
        """How much of its memory it has used, from 0 to 1; None without a limit."""
        if not self.facts.maxmemory or self.used_bytes is None:
            return None
        return self.used_bytes / self.facts.maxmemory

    def as_dict(self) -> shapes.Server:
        """The same as plain JSON values."""
        facts = self.facts
        return {
            "url": self.url,
            "version": facts.version,
            "role": facts.role,
            "used_bytes": self.used_bytes,
            "maxmemory_bytes": facts.maxmemory,
            "maxmemory_policy": facts.maxmemory_policy,
            "appendonly": facts.appendonly,
            "appendfsync": facts.appendfsync,
            "save": facts.save,
        }


@dataclass(frozen=True)
class Status:
    """A namespace at one moment.

    Attributes:
        now_ms: the server's time.
        tasks: how many are "queued", "parked", "running", "waiting", "owed", "dead".
        is_exact: whether those are counted; else what waits is estimated by a sample.
        groups: the dead letters by what they died of, as far as that is known, with how many of
            each are recent.
        recent_seconds: so long ago those were buried at most.
        waits: what waits in the ledger and in no queue: for a moment, a place, a worker.
        orders: what operators have paused, struck and drained.
        broker_problem: why the queues could not be looked at; empty if they were.
        sweep_seconds: how often passes run.
        lease_seconds: how long leases are.
        dead_letter_max: how many dead letters are kept.
        trimmed: how many were deleted since there were more.
        trimmed_ms: when the last of them was; 0: none ever was.
        throughput: how fast attempts are processed, and how many fail and are lost.
    """

    now_ms: int
    app: str
    namespace: str
    server: Server
    last_pass: LastPass
    workers: tuple[WorkerView, ...]
    deaths: tuple[Death, ...]
    queues: tuple[QueueView, ...]
    tasks: Mapping[str, int]
    is_exact: bool
    groups: tuple[GroupOfLetters, ...]
    recent_seconds: float
    broker_problem: str
    sweep_seconds: float
    lease_seconds: float
    waits: Waiting = field(default_factory=Waiting)
    orders: tuple[OrderView, ...] = ()
    dead_letter_max: int = 0
    trimmed: int = 0
    trimmed_ms: int = 0
    throughput: Throughput = field(default_factory=Throughput)

    def is_paused(self, queue: str) -> bool:
        """Whether an order lets nobody take from a queue."""
        return any(
            one.in_force and one.order.kind is OrderKind.PAUSE and one.order.names(queue)
            for one in self.orders
        )

    @property
    def dead_by_reason(self) -> dict[str, int]:
        """How many dead letters have each reason."""
        found: Counter[str] = Counter()
        for one in self.groups:
            found[one.group.reason] += one.count
        return dict(sorted(found.items()))

    @property
    def workers_by_state(self) -> dict[str, int]:
        """How many workers are alive, lapsed and dead."""
        counts = Counter(one.state for one in self.workers)
        return {state: counts[state] for state in ("alive", "lapsed", "dead")}

    @property
    def slots(self) -> int:
        """How many tasks living workers run at once at the most, of those that tell."""
        return sum(one.slots or 0 for one in self.workers if one.state == "alive")

    @property
    def waiting(self) -> int:
        """How many messages wait in queues; where the broker does not tell, records."""
        depths = [one.depth for one in self.queues if one.depth is not None]
        return sum(depths) if depths else self.tasks["queued"]

    @property
    def saturation(self) -> float | None:
        """What runs and waits, for each slot: above 1 more workers would help.  None without a
        slot, when nothing can be said.
        """
        running = sum(
            max(one.running or 0, one.claims) for one in self.workers if one.state == "alive"
        )
        return round((running + self.waiting) / self.slots, 3) if self.slots else None

    def as_dict(self) -> shapes.Status:
        """The same as plain JSON values."""
        return {
            "at": iso(self.now_ms),
            "app": self.app,
            "namespace": self.namespace,
            "ledger": self.server.as_dict(),
            "last_pass": {
                "ended_at": iso(self.last_pass.ended_ms),
                "seconds_ago": self.last_pass.seconds_ago,
                "report": dict(self.last_pass.report),
            },
            "orders": [one.as_dict() for one in self.orders],
            "tasks": dict(self.tasks),
            "is_exact": self.is_exact,
            "waiting_for_worker": self.waits.for_workers,
            "nobody_alive": [one.as_dict() for one in self.waits.named],
            "dead_by_reason": self.dead_by_reason,
            "workers_by_state": self.workers_by_state,
            "workers": [one.as_dict() for one in self.workers],
            "slots": self.slots,
            "saturation": self.saturation,
            "deaths": [
                {
                    "worker": one.worker,
                    "cause": one.cause,
                    "at": iso(one.at_ms),
                    "claims": one.claims,
                }
                for one in self.deaths
            ],
            "queues": [one.as_dict() for one in self.queues],
            "limited": dict(self.waits.limited),
            "in_line": dict(self.waits.in_line),
            "places": [one.as_dict() for one in self.waits.places],
            "broker_problem": self.broker_problem,
            "throughput": self.throughput.as_list(),
        }


def look_at_status(
    app: Celery, ledger: Ledger, broker: BrokerView, recent_seconds: float = RECENT_SECONDS
) -> Status:
    """Look at everything once.  Raises what the ledger raises; a broker that is away is part of
    the answer.

    What is read is bounded, however many records and dead letters there are.
    """
    reliable = reliable_of(app)
    config = reliable.config
    numbers = ledger.numbers()
    now_ms = numbers.now_ms
    meta = ledger.passes.meta()
    report = json.loads(meta.get("report") or "{}")
    workers = tuple(Workers(ledger, broker).all(with_broker=False))
    looked_at = Queues(app, ledger, broker)
    states, is_exact = looked_at.states()
    queues, problem = _queues(app, looked_at, workers)
    running = sum(one.claims for one in workers)
    return Status(
        now_ms=now_ms,
        app=reliable.project[0],
        namespace=ledger.namespace,
        server=_server(ledger),
        last_pass=_last_pass(meta, report, now_ms),
        workers=workers,
        deaths=_deaths(meta),
        queues=queues,
        tasks={**states, "running": running, "dead": numbers.dead},
        is_exact=is_exact,
        groups=_groups(ledger, now_ms - int(1000 * recent_seconds)),
        recent_seconds=recent_seconds,
        broker_problem=problem,
        sweep_seconds=config.sweep_seconds,
        lease_seconds=config.lease_seconds,
        waits=look_at_waiting(app, ledger, looked_at.in_line(), workers),
        orders=obeyed_by(ledger, ledger.orders.read()),
        dead_letter_max=config.dead_letter_max,
        trimmed=int(meta.get("trimmed") or 0),
        trimmed_ms=int(meta.get("trimmed_ms") or 0),
        throughput=look_at_throughput(ledger),
    )


def _queues(
    app: Celery, queues: Queues, workers: tuple[WorkerView, ...]
) -> tuple[tuple[QueueView, ...], str]:
    connection = app.connection_for_read()
    errors = (OperationalError, *connection.connection_errors, *connection.channel_errors)
    try:
        return tuple(queues.of(workers)), ""
    except ReliableError:
        raise
    except errors as exc:
        # Without the password that may be in what it says.
        return (), as_shown(exc)


def _server(ledger: Ledger) -> Server:
    info = ledger.server_facts()
    facts = ServerFacts.from_info(info, has_sentinel=ledger.connector.has_sentinel)
    used = info.get("used_memory")
    return Server(ledger.connector.shown, facts, int(used) if used is not None else None)


def _last_pass(meta: Mapping[str, str], report: Mapping[str, Any], now_ms: int) -> LastPass:
    ended_ms = int(meta.get("passed_ms") or 0)
    if not ended_ms:
        return LastPass()
    # What was noted by a clock that was ahead is no time to come.
    age_seconds = max(0.0, round((now_ms - ended_ms) / 1000, 3))
    return LastPass(ended_ms, age_seconds, report)


def _deaths(meta: Mapping[str, str]) -> tuple[Death, ...]:
    found = json.loads(meta.get("deaths") or "[]")
    return tuple(
        Death(
            str(one.get("worker", "")),
            str(one.get("cause", "")),
            int(one.get("at_ms", 0)),
            int(one.get("claims", 0)),
        )
        for one in found
    )


def _groups(ledger: Ledger, since_ms: int) -> tuple[GroupOfLetters, ...]:
    # Where the ledger is full nobody can bring the index up to date.
    with suppress(LedgerRefused):
        ledger.groups.catch_up(_CAUGHT_UP_AT_ONCE)
    with suppress(LedgerRefused):
        return tuple(ledger.groups.counts(since_ms=since_ms))
    return ()
