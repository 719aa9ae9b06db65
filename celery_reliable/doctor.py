"""The doctor: collects the facts of a set-up, for the table of findings.

It looks at settings, tasks, what is installed, the servers, the rows and the living workers.  A
worker that starts asks for a part of it, and refuses to start for the errors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from billiard import get_start_method
from celery import Celery
from celery.backends.base import DisabledBackend
from celery.backends.redis import RedisBackend

from celery_reliable.app import Reliable, reliable_of, scheme_of
from celery_reliable.compat import Part, missing
from celery_reliable.exceptions import (
    ConfigurationError,
    LedgerForbidden,
    LedgerRefused,
    LedgerUnavailable,
    one_line,
)
from celery_reliable.findings import (
    DURABILITY,
    FLEET,
    NAMESPACE_TOO_NEW,
    NO_REDIS,
    NOT_LOOKED_AT,
    REDIS_FORBIDS,
    REDIS_UNFIT,
    SERVER,
    SETTINGS_WRONG,
    SETUP,
    START,
    SUPPORTED,
    Finding,
    ServerFacts,
    Setup,
    TaskSetup,
    WorkerSetup,
    look,
    neighbours,
    worst_first,
)
from celery_reliable.ledger import Ledger, WorkerLook, self_test
from celery_reliable.options import is_reliable, options_without_base
from celery_reliable.settings import acl_rule
from celery_reliable.version import __version__

__all__ = [
    "Examination",
    "ask_hooks",
    "ask_ledger",
    "examine",
    "setup_of",
    "setup_to_tell",
]

#: The field of a worker's facts in the ledger.
_FIELD: Final = "setup"
#: Values of `worker_pool` for the modules that Celery has the pools in.
_POOLS: Final = {"threads": "thread", "processes": "prefork"}

#: For so long a Redis is asked that does not answer.
_PATIENCE_SECONDS: Final = 3.0


def setup_of(reliable: Reliable, tasks: Mapping[str, Any] | None = None, pool: str = "") -> Setup:
    """Return how an app is set up, by its settings.

    *tasks*: those to look at, by name; None: all of the app.  *pool*: the kind of the worker's
    pool; empty: the one of the settings.  Raises ConfigurationError.
    """
    app, config, conf = reliable.app, reliable.config, reliable.app.conf
    own = _setup_of_settings(conf)
    here = replace(own, where="this host", pool=pool or own.pool, versions=dict(_installed()))
    named = conf.get("worker_pool_start_method") or "fork"
    return Setup(
        config=config,
        scheme=scheme_of(reliable.broker_url),
        is_redis=reliable.is_redis_broker,
        is_unprotected=reliable.is_unprotected,
        # With its default Celery leaves the choice to billiard, which spawns on macOS since 4.3.
        start_method=str(get_start_method() if named == "fork" else named),
        is_default_method=named == "fork",
        here=here,
        tasks=_tasks_of(app.tasks if tasks is None else tasks),
        workers=(own,),
        schedule=_schedule(conf.beat_schedule or {}),
        is_schedule_elsewhere="django_celery_beat" in str(conf.beat_scheduler),
    )


def _schedule(entries: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(task)
        for name, one in entries.items()
        # A mapping, or an entry of Celery's class.
        if (task := one.get("task") if isinstance(one, Mapping) else one.task)
    }


def _tasks_of(tasks: Mapping[str, Any]) -> list[TaskSetup]:
    """Return how *tasks* are set up, but those of Celery's and our own; by name."""
    return [
        TaskSetup(
            name=name,
            is_reliable=is_reliable(task),
            acks_late=bool(task.acks_late),
            is_requeued_when_lost=bool(task.reject_on_worker_lost),
            time_limit=task.time_limit,
            time_to_run_seconds=getattr(type(task), "time_to_run_seconds", None),
            once_for_seconds=getattr(type(task), "once_for_seconds", None),
            has_row=getattr(type(task), "row_model", None) is not None,
            idle_options=() if is_reliable(task) else tuple(options_without_base(type(task))),
        )
        for name, task in sorted(tasks.items())
        if not name.startswith(("celery.", "celery_reliable."))
    ]


def _setup_of_settings(conf: Any) -> WorkerSetup:
    """Return how a worker would be set up that is given nothing at the command line."""
    named = str(conf.worker_pool or "prefork")
    pool = (named.rpartition(":")[0] or named).rpartition(".")[2]
    return WorkerSetup(
        where="a worker of these settings",
        pool=_POOLS.get(pool, pool),
        version=__version__,
        **_of_settings(conf, conf.task_time_limit),
    )


def setup_to_tell(w: Any) -> dict[str, dict[str, Any]]:
    """Return what a worker that starts stores about its set-up, as JSON values."""
    told = _of_settings(w.app.conf, w.time_limit)
    return {_FIELD: {"versions": dict(_installed()), **told}}


def _of_settings(conf: Any, time_limit: Any) -> dict[str, Any]:
    options = conf.broker_transport_options or {}
    return {
        "time_limit": time_limit,
        "visibility_seconds": float(options.get("visibility_timeout") or 3600.0),
    }


def _stored_setup(one: WorkerLook, ahead_ms: int) -> WorkerSetup:
    """Return how a living worker is set up, by what it has stored.  *ahead_ms*: how far the
    ledger's clock is ahead of its server's.
    """
    facts: Mapping[str, Any] = one.lease.facts
    clock = one.doing.get("clock")
    # A worker of a later release may tell more.
    told = facts.get(_FIELD) or {}
    known = {name: told[name] for name in told.keys() & WorkerSetup.__dataclass_fields__.keys()}
    seen = {
        "where": str(facts.get("nodename") or one.lease.worker),
        "pool": str(facts.get("pool") or ""),
        "version": str(facts.get("version") or ""),
        "clock_ahead_seconds": (
            clock - (one.beat_ms - ahead_ms) / 1000 if clock and one.beat_ms else None
        ),
        "no_witness": one.lease.no_witness,
    }
    return WorkerSetup(**(known | seen))


def _installed() -> Iterator[tuple[str, str]]:
    for package in SUPPORTED:
        with suppress(PackageNotFoundError):
            yield package, version(package)


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, errors first, and whether the ledger could not be reached."""

    findings: Sequence[Finding]
    is_ledger_away: bool = False


def examine(app: Celery, *, tasks: bool = True, servers: bool = True) -> Examination:
    """Return what is wrong with the set-up of an app.  This changes nothing, and raises nothing for
    what is wrong.

    Args:
        app: the app.
        tasks: import the app's tasks and finalize it; else they are looked at only where that has
            been done.
        servers: ask the servers, and look at what living workers report.
    """
    found: list[Finding] = []
    if tasks:
        try:
            app.loader.import_default_modules()
            app.finalize()
        except Exception as exc:
            found.append(_unseen("Tasks", f"importing them failed: {one_line(exc)}."))
    reliable = reliable_of(app)
    try:
        setup = setup_of(reliable, app.tasks if app.finalized else {})
    except ConfigurationError as exc:
        wrong = [SETTINGS_WRONG.found(problem=problem) for problem in exc.problems]
        return Examination(worst_first([*found, *wrong]))
    setup = replace(setup, **_results(reliable), is_eager=bool(app.conf.task_always_eager))
    is_asked = servers and not reliable.is_unprotected
    try:
        reliable.connector()
    except ConfigurationError as exc:
        is_asked = False
        if not (reliable.is_unprotected or setup.is_eager):
            found.append(NO_REDIS.found(problem=str(exc)))
    of_servers, setup, is_away = _ask(reliable, setup) if is_asked else ([], setup, False)
    found += [*look(START, setup), *look(SETUP, setup), *look(FLEET, setup), *of_servers]
    found += ask_hooks(reliable, setup.here.pool)
    return Examination(worst_first(found), is_away)


def _ask(reliable: Reliable, setup: Setup) -> tuple[list[Finding], Setup, bool]:
    """Ask servers and living workers; return what is wrong, the set-up with what they report, and
    whether the ledger could not be reached.
    """
    found, is_away = [], False
    try:
        with closing(reliable.own_ledger(patience_seconds=_PATIENCE_SECONDS)) as ledger:
            of_ledger = ask_ledger(reliable, ledger)
            found += of_ledger
            if not _has_error(of_ledger):
                setup = _with_workers(setup, ledger)
    except (LedgerUnavailable, LedgerRefused) as exc:
        is_away = isinstance(exc, LedgerUnavailable)
        found.append(_unseen("The ledger's Redis, with all workers,", str(exc)))
    return found, setup, is_away


def _with_workers(setup: Setup, ledger: Ledger) -> Setup:
    now_ms, ahead_ms = ledger.workers.time_ms(), ledger.workers.ahead_ms()
    alive = [
        _stored_setup(one, ahead_ms)
        for one in ledger.worker_looks()
        if not one.lease.is_dead and one.lease.until_ms > now_ms
    ]
    ahead = time.time() - (ledger.workers.time_ms() - ahead_ms) / 1000
    here = replace(setup.here, clock_ahead_seconds=ahead)
    return replace(setup, here=here, workers=alive or setup.workers)


def _has_error(found: Sequence[Finding]) -> bool:
    return any(one.severity == "error" for one in found)


def ask_ledger(reliable: Reliable, ledger: Ledger) -> list[Finding]:
    """Return what is wrong with the ledger's server.

    After an error nothing more is looked at.  Raises LedgerUnavailable and LedgerRefused.
    """
    facts = ServerFacts.from_info(ledger.server_facts(), has_sentinel=ledger.connector.has_sentinel)
    found = [*look(SERVER, facts), *look(DURABILITY, facts)]
    if _has_error(found):
        return found
    # This reads the format of the namespace first.
    entry = NAMESPACE_TOO_NEW
    with closing(
        reliable.own_ledger(patience_seconds=_PATIENCE_SECONDS, is_for_operators=True)
    ) as careful:
        try:
            leases = careful.workers.leases()
            entry = REDIS_UNFIT
            self_test(careful)
        except LedgerForbidden as exc:
            rule = " ".join(acl_rule(reliable.config.namespace, queues=reliable.app.amqp.queues))
            return [*found, REDIS_FORBIDS.found(problem=str(exc), rule=rule)]
        except LedgerRefused as exc:
            return [*found, entry.found(problem=str(exc))]
    others = [one.project for one in leases if not one.is_dead]
    return [*found, *neighbours(reliable.project, others, reliable.config.namespace)]


def _unseen(what: str, why: str) -> Finding:
    return NOT_LOOKED_AT.found(what=what, why=why)


def ask_hooks(reliable: Reliable, pool: str) -> list[Finding]:
    """Return the names that hooks of a worker with this kind of pool rely on, and that are not
    installed.
    """
    needed = {
        Part.PRODUCER: True,
        Part.WORKER: True,
        Part.PREFORK: pool == "prefork",
        Part.GEVENT: pool == "gevent",
        Part.REDIS_BROKER: reliable.is_redis_broker,
        Part.REDIS_RESULTS: isinstance(reliable.app.backend, RedisBackend),
    }
    # Settings by which the ledger cannot be reached are reported when it is looked at.
    with suppress(ConfigurationError):
        # What its tasks publish.
        needed[Part.REDIS_PRODUCER] = bool(reliable.queues_at)
    return list(missing([part for part, is_needed in needed.items() if is_needed]))


def _results(reliable: Reliable) -> dict[str, Any]:
    """Return when results are deleted (0: never), as far as that can be told."""
    found: dict[str, Any] = {}
    # The settings may be wrong, or a package missing: reported where the servers are asked.
    with suppress(Exception):
        backend: Any = reliable.app.backend
        if not isinstance(backend, DisabledBackend):
            found["results_expire_seconds"] = float(getattr(backend, "expires", None) or 0)
    return found
