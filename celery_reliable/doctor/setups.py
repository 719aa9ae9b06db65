"""How tasks and workers are set up: what an app's settings say, and what living workers tell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from celery import Celery

from celery_reliable.ledger import WorkerLook
from celery_reliable.options import is_reliable

__all__ = [
    "PACKAGES",
    "TaskSetup",
    "WorkerSetup",
    "alive",
    "setup_of_settings",
    "setup_to_tell",
    "tasks_of",
    "told_setup",
]

#: Whose releases matter.
PACKAGES: Final = ("celery", "kombu", "redis")
#: The field of a worker's facts in the ledger.
_FIELD: Final = "setup"
#: Celery's default on Redis.
_VISIBILITY_SECONDS: Final = 3600.0
#: Names of `worker_pool` for the modules that Celery has the pools in; ours is a prefork pool.
_POOLS: Final = {
    "threads": "thread",
    "processes": "prefork",
    "celery_reliable.pool:TaskPool": "prefork",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSetup:
    """What a task's class says of its times, in seconds; None: nothing."""

    name: str
    is_reliable: bool = True
    time_limit: float | None = None
    time_to_run_seconds: float | None = None
    once_for_seconds: float | None = None
    #: It works on a row of a Django project, which has to be looked after.
    has_row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """How a worker is set up, or would be by the settings.

    Attributes:
        where: its name, or what stands for it.
        pool: "prefork", "thread", "solo", "gevent", or another's module.
        slots: how many tasks it runs at once; None: not known.
        prefetch: how many messages it fetches for each slot; 0: all there are.
        time_limit: Celery's, in seconds, for tasks without one of their own.
        soft_shutdown_seconds: for how long a soft shutdown waits; 0: there is none.
        is_sigterm_soft: whether SIGTERM begins a soft shutdown, and not a warm one.
        visibility_timeout_seconds: of its broker's transport.
        version: of this package.
        versions: of other packages.
        clock_ahead_seconds: its clock against the server's; None: not known.
        no_witness: why its death shows by its lease only; empty where it shows at once.
    """

    where: str
    pool: str = "prefork"
    slots: int | None = None
    prefetch: int | None = None
    time_limit: float | None = None
    soft_shutdown_seconds: float | None = None
    is_sigterm_soft: bool | None = None
    visibility_timeout_seconds: float | None = None
    version: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    clock_ahead_seconds: float | None = None
    no_witness: str = ""


def tasks_of(tasks: Mapping[str, Any]) -> list[TaskSetup]:
    """Return what *tasks* say, but those of Celery's and our own; by name."""
    return [
        TaskSetup(
            name=name,
            is_reliable=is_reliable(task),
            time_limit=task.time_limit,
            time_to_run_seconds=getattr(type(task), "time_to_run_seconds", None),
            once_for_seconds=getattr(type(task), "once_for_seconds", None),
            has_row=getattr(type(task), "row_model", None) is not None,
        )
        for name, task in sorted(tasks.items())
        if not name.startswith(("celery.", "celery_reliable."))
    ]


def setup_of_settings(app: Celery) -> WorkerSetup:
    """Return how a worker would be set up that is given nothing at the command line."""
    conf = app.conf
    named = str(conf.worker_pool or "prefork")
    if named == "custom":
        # Celery reads it so.
        named = os.environ.get("CELERY_CUSTOM_WORKER_POOL") or named
    pool = (named.rpartition(":")[0] or named).rpartition(".")[2]
    soft = _soft_shutdown_seconds(conf)
    return WorkerSetup(
        where="a worker of these settings",
        pool=_POOLS.get(named, _POOLS.get(pool, pool)),
        slots=conf.worker_concurrency,
        prefetch=_prefetch(conf, conf.worker_prefetch_multiplier),
        time_limit=conf.task_time_limit,
        soft_shutdown_seconds=soft,
        # What the environment of workers has is not known here.
        is_sigterm_soft=_is_sigterm_soft() or (None if soft else False),
        visibility_timeout_seconds=_visibility_seconds(conf),
    )


def setup_to_tell(w: Any) -> dict[str, dict[str, Any]]:
    """Return what a worker that starts tells of itself, as JSON values: what `told_setup` reads."""
    conf = w.app.conf
    return {
        _FIELD: {
            "versions": dict(_installed()),
            "prefetch": _prefetch(conf, w.prefetch_multiplier),
            "time_limit": w.time_limit,
            "soft_shutdown": _soft_shutdown_seconds(conf),
            "sigterm_soft": _is_sigterm_soft(),
            "visibility_timeout": _visibility_seconds(conf),
        }
    }


def told_setup(look: WorkerLook) -> WorkerSetup:
    """Return what a worker has told of itself; None for what it has not."""
    facts = look.lease.facts
    told: Any = facts.get(_FIELD) or {}
    clock = look.doing.get("clock")
    is_known = isinstance(clock, (int, float)) and look.beat_ms
    return WorkerSetup(
        where=str(facts.get("nodename") or look.lease.worker),
        pool=str(facts.get("pool") or ""),
        slots=_number(look.doing.get("slots")),
        prefetch=_number(told.get("prefetch")),
        time_limit=_seconds(told.get("time_limit")),
        soft_shutdown_seconds=_seconds(told.get("soft_shutdown")),
        is_sigterm_soft=told.get("sigterm_soft"),
        visibility_timeout_seconds=_seconds(told.get("visibility_timeout")),
        version=str(facts.get("version") or ""),
        versions=told.get("versions") or {},
        clock_ahead_seconds=float(clock) - look.beat_ms / 1000 if is_known and clock else None,
        no_witness=look.lease.no_witness,
    )


def _installed() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            continue


def _soft_shutdown_seconds(conf: Any) -> float:
    return float(conf.worker_soft_shutdown_timeout or 0)


def _is_sigterm_soft() -> bool:
    # billiard reads it so.
    return os.environ.get("REMAP_SIGTERM") == "SIGQUIT"


def _visibility_seconds(conf: Any) -> float:
    options = conf.broker_transport_options or {}
    return float(options.get("visibility_timeout") or _VISIBILITY_SECONDS)


def _prefetch(conf: Any, multiplier: Any) -> int:
    # Celery 5.6 and later fetch for a free slot only, if they are told so.
    return 1 if conf.get("worker_disable_prefetch") else int(multiplier)


def _number(told: object) -> int | None:
    return told if isinstance(told, int) else None


def _seconds(told: object) -> float | None:
    return float(told) if isinstance(told, (int, float)) else None


def alive(looks: Iterable[WorkerLook], now_ms: int) -> list[WorkerLook]:
    """Return the workers whose lease runs."""
    return [look for look in looks if not look.lease.is_dead and look.lease.until_ms > now_ms]
