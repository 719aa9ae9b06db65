"""The whole examination of a set-up, with or without its servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from celery import Celery

from celery_reliable.app import Reliable, facts_of, reliable_of
from celery_reliable.doctor.fleet import check_clock, check_fleet, supported
from celery_reliable.doctor.installation import (
    check_extras,
    check_hooks,
    check_installed,
    check_pool,
)
from celery_reliable.doctor.rows import check_open_rows, open_rows
from celery_reliable.doctor.schedule import check_rows, check_schedule
from celery_reliable.doctor.servers import (
    check_broker,
    check_ledger,
    check_results,
    fills_ledger,
    has_error,
    not_looked_at,
    results_expire_seconds,
    unseen,
)
from celery_reliable.doctor.setups import (
    TaskSetup,
    WorkerSetup,
    alive,
    setup_of_settings,
    tasks_of,
    told_setup,
)
from celery_reliable.doctor.times import check_times
from celery_reliable.doctor.wording import listed
from celery_reliable.exceptions import (
    ConfigurationError,
    LedgerRefused,
    LedgerUnavailable,
    one_line,
)
from celery_reliable.ledger import Ledger
from celery_reliable.model import Finding
from celery_reliable.settings import AppFacts, check_app
from celery_reliable.version import __version__

__all__ = ["Examination", "examine"]

_LEVELS = ("error", "warning", "info")


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found, errors first.

    Attributes:
        findings: each has an entry in the catalogue.
        is_ledger_away: whether the ledger could not be reached.
    """

    findings: tuple[Finding, ...]
    is_ledger_away: bool = False


def examine(
    app: Celery,
    *,
    tasks: bool = True,
    servers: bool = True,
    grace_seconds: float | None = None,
    patience_seconds: float = 3.0,
) -> Examination:
    """Return what is found out about the set-up of an app.  Raises nothing for what is wrong with
    it, and changes nothing.

    Args:
        app: the app.
        tasks: import the app's tasks and finalize it; else they are looked at only where that has
            been done.
        servers: ask the servers, and look at what living workers tell.
        grace_seconds: how long the orchestrator waits between SIGTERM and SIGKILL; None: the
            setting GRACE_SECONDS.
        patience_seconds: how long to go on asking a Redis that does not answer.
    """
    found = [*check_installed(), *check_extras()]
    if tasks:
        try:
            app.loader.import_default_modules()
            app.finalize()
        except Exception as exc:
            found.append(not_looked_at("the tasks", f"importing them failed: {one_line(exc)}."))
    reliable = reliable_of(app)
    try:
        config = reliable.config
    except ConfigurationError as exc:
        return _examination([*found, *map(_wrong, exc.problems)])
    own = setup_of_settings(app)
    by_name = app.tasks if app.finalized else {}
    facts = facts_of(reliable, by_name)
    looked = _Looked()
    if servers and not reliable.is_unprotected and not has_error(check_app(facts)):
        looked = _look(reliable, patience_seconds)
    workers = list(looked.workers) or [own]
    known = tasks_of(by_name)
    is_eager = bool(app.conf.task_always_eager)
    found += check_app(replace(_with_timeouts(facts, workers), is_eager=is_eager))
    found += check_pool(own.pool, app.conf)
    found += check_hooks(reliable, own.pool)
    found += check_times(
        known,
        workers,
        config,
        results_expire_seconds=results_expire_seconds(reliable),
        is_redis_broker=reliable.is_redis_broker,
        fills_ledger=fills_ledger(reliable),
        grace_seconds=config.grace_seconds if grace_seconds is None else grace_seconds,
    )
    schedule = app.conf.beat_schedule or {}
    found += check_schedule(schedule, workers)
    with_rows = [one.name for one in known if one.has_row]
    found += check_rows(schedule, with_rows, str(app.conf.beat_scheduler))
    if servers and not reliable.is_unprotected:
        found += _asked(lambda: [*check_open_rows(open_rows() or (), with_rows)], "rows with tasks")
    found += _plain(known)
    return _examination([*found, *looked.findings], is_ledger_away=looked.is_away)


@dataclass(frozen=True, slots=True)
class _Looked:
    """What servers and living workers tell."""

    findings: Sequence[Finding] = ()
    workers: Sequence[WorkerSetup] = ()
    is_away: bool = False


def _look(reliable: Reliable, patience_seconds: float) -> _Looked:
    try:
        ledger = reliable.own_ledger(reply_timeout_seconds=5.0, patience_seconds=patience_seconds)
    except ConfigurationError as exc:
        name = "cache_unusable" if reliable.config.cache is not None else "no_redis"
        return _Looked([Finding(f"celery_reliable.{name}", "error", str(exc), "Change that.")])
    found: list[Finding] = []
    workers: list[WorkerSetup] = []
    is_away = False
    try:
        of_ledger, facts = check_ledger(reliable, ledger)
        found += [*of_ledger, *unseen(facts)]
        if not has_error(found):
            workers = _living(ledger)
            found += check_fleet(workers, __version__, supported() or {})
            found += check_clock("this host", time.time() - ledger.workers.time_ms() / 1000)
    except LedgerUnavailable as exc:
        is_away = True
        found.append(not_looked_at("the ledger's Redis, and workers,", str(exc)))
    except LedgerRefused as exc:
        found.append(not_looked_at("the ledger's Redis, and workers,", str(exc)))
    finally:
        ledger.close()
    found += _asked(lambda: check_broker(reliable), "the rights at the broker's Redis")
    found += _asked(lambda: check_results(reliable), "the rights at the result backend's Redis")
    return _Looked(found, workers, is_away)


def _living(ledger: Ledger) -> list[WorkerSetup]:
    looks = ledger.worker_looks()
    return [told_setup(look) for look in alive(looks, ledger.workers.time_ms())]


def _asked(look: Callable[[], list[Finding] | None], what: str) -> list[Finding]:
    try:
        found = look()
    except Exception as exc:
        # A backend whose packages are not installed, say.
        return [not_looked_at(what, f"{one_line(exc)}.")]
    return [not_looked_at(what, "it does not answer.")] if found is None else found


def _with_timeouts(facts: AppFacts, workers: Iterable[WorkerSetup]) -> AppFacts:
    """Return the facts with the shortest visibility timeout that anybody has."""
    told = [facts.visibility_timeout_seconds, *(one.visibility_timeout_seconds for one in workers)]
    known = [seconds for seconds in told if seconds is not None]
    return replace(facts, visibility_timeout_seconds=min(known, default=None))


def _plain(tasks: Iterable[TaskSetup]) -> Iterator[Finding]:
    names = [task.name for task in tasks if not task.is_reliable]
    if names:
        yield Finding(
            "celery_reliable.plain_tasks",
            "info",
            f"{len(names)} of the app's tasks have another base than ReliableTask: "
            f"{listed(names, 20)}.",
            "Give those that must not be lost base=ReliableTask.",
        )


def _wrong(problem: str) -> Finding:
    return Finding(
        "celery_reliable.settings_wrong",
        "error",
        problem,
        "Change CELERY_RELIABLE (app.conf.reliable without Django).",
    )


def _examination(found: Iterable[Finding], *, is_ledger_away: bool = False) -> Examination:
    once = dict.fromkeys(found)
    return Examination(
        tuple(sorted(once, key=lambda one: _LEVELS.index(one.level))), is_ledger_away
    )
