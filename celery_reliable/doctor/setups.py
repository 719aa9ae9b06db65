"""How an app and its workers are set up: by the settings, and by what living workers store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from billiard import get_start_method

from celery_reliable.app import Reliable, scheme_of
from celery_reliable.findings import SUPPORTED, Setup, TaskSetup, WorkerSetup
from celery_reliable.ledger import WorkerLook
from celery_reliable.options import is_reliable, options_without_base
from celery_reliable.version import __version__

__all__ = ["setup_of", "setup_to_tell", "stored_setup"]

#: The field of a worker's facts in the ledger.
_FIELD: Final = "setup"
#: Values of `worker_pool` for the modules that Celery has the pools in; ours is a prefork pool.
_POOLS: Final = {
    "threads": "thread",
    "processes": "prefork",
    "celery_reliable.pool:TaskPool": "prefork",
}


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
    if named == "custom":
        # Celery reads it so.
        named = os.environ.get("CELERY_CUSTOM_WORKER_POOL") or named
    pool = (named.rpartition(":")[0] or named).rpartition(".")[2]
    told = _of_settings(conf, conf.worker_prefetch_multiplier, conf.task_time_limit)
    # The environment of workers is not known here.
    if not told["is_sigterm_soft"] and told["soft_shutdown_seconds"]:
        told["is_sigterm_soft"] = None
    return WorkerSetup(
        where="a worker of these settings",
        pool=_POOLS.get(named, _POOLS.get(pool, pool)),
        slots=conf.worker_concurrency,
        version=__version__,
        **told,
    )


def setup_to_tell(w: Any) -> dict[str, dict[str, Any]]:
    """Return what a worker that starts stores about its set-up, as JSON values."""
    told = _of_settings(w.app.conf, w.prefetch_multiplier, w.time_limit)
    return {_FIELD: {"versions": dict(_installed()), **told}}


def _of_settings(conf: Any, multiplier: Any, time_limit: Any) -> dict[str, Any]:
    options = conf.broker_transport_options or {}
    return {
        # Celery 5.6 and later fetch for a free slot only, if they are told so.
        "prefetch": 1 if conf.get("worker_disable_prefetch") else int(multiplier),
        "time_limit": time_limit,
        "soft_shutdown_seconds": float(conf.worker_soft_shutdown_timeout or 0),
        # billiard reads it so.
        "is_sigterm_soft": os.environ.get("REMAP_SIGTERM") == "SIGQUIT",
        "visibility_seconds": float(options.get("visibility_timeout") or 3600.0),
    }


def stored_setup(one: WorkerLook, ahead_ms: int) -> WorkerSetup:
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
        "slots": one.doing.get("slots"),
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
