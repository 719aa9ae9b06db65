"""Times that do not fit each other: limits, fetching ahead, results, the end of a worker.

Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from celery_reliable.doctor.setups import TaskSetup, WorkerSetup
from celery_reliable.doctor.wording import listed
from celery_reliable.model import Finding
from celery_reliable.options import is_cut_short
from celery_reliable.settings import ReliableConfig

__all__ = ["check_times"]

#: Who may run for so long keeps what was fetched with it waiting.
_LONG_SECONDS: Final = 60.0
#: A queued task is looked after once in so many QUEUED_SECONDS at least.
_LOOKS: Final = 10
#: Pools in which nothing ends an attempt that was taken away, and those without Celery's limit.
_ATTEMPTS_GO_ON: Final = ("thread", "solo", "gevent")
#: Pools whose workers take back what waits for a slot.
_GIVES_BACK: Final = ("prefork", "thread")
_WITHOUT_LIMIT: Final = ("thread", "solo")


def check_times(
    tasks: Sequence[TaskSetup],
    workers: Sequence[WorkerSetup],
    config: ReliableConfig,
    *,
    results_expire_seconds: float | None,
    is_redis_broker: bool = False,
    fills_ledger: bool = False,
    grace_seconds: float | None = None,
) -> list[Finding]:
    """Return which times of tasks, workers and results do not fit each other.

    Args:
        tasks: all of the app.
        workers: those that live; where none does, what the settings would make.
        config: the settings.
        results_expire_seconds: 0: never; None: there are no results, or nobody knows.
        is_redis_broker: whether workers can give back what they fetched and cannot begin.
        fills_ledger: whether results are on the ledger's server.
        grace_seconds: from SIGTERM to SIGKILL; None: not known.
    """
    ours = [task for task in tasks if task.is_reliable]
    return [
        *_limits(ours, workers),
        *_pools(tasks, workers),
        *_prefetch(ours, workers, gives_back=is_redis_broker and bool(config.give_back_seconds)),
        *_results(ours, workers, config, results_expire_seconds, fills_ledger),
        *_visibility(workers, config),
        *_grace(tasks, workers, grace_seconds),
    ]


def _limits(tasks: Iterable[TaskSetup], workers: Sequence[WorkerSetup]) -> Iterator[Finding]:
    found = []
    for task in tasks:
        limit = _limit_of(task, workers)
        if is_cut_short(task.time_to_run_seconds, limit):
            found.append(f"{task.name} ({limit:g} s of {task.time_to_run_seconds:g} s)")
    if found:
        yield Finding(
            "celery_reliable.time_limit_before_time_to_run",
            "warning",
            f"Tasks whose time_limit is over before their time_to_run_seconds: {listed(found)}.",
            "Set time_limit (task_time_limit, --time-limit) well above time_to_run_seconds and all "
            "that touch() may add to it, or leave one of the two out.",
        )


def _pools(tasks: Iterable[TaskSetup], workers: Iterable[WorkerSetup]) -> Iterator[Finding]:
    everyone = list(tasks)
    for pool, names in _by_pool(workers).items():
        goes_on = [
            task.name
            for task in everyone
            if task.is_reliable and task.time_to_run_seconds and pool in _ATTEMPTS_GO_ON
        ]
        unlimited = [t.name for t in everyone if t.time_limit and pool in _WITHOUT_LIMIT]
        said = []
        if goes_on:
            said.append(f"an attempt over its time_to_run_seconds runs on ({listed(goes_on)})")
        if unlimited:
            said.append(f"time_limit is not enforced ({listed(unlimited)})")
        if said:
            yield Finding(
                "celery_reliable.pool_cannot_stop",
                "warning",
                f"The pool of {listed(names)} is {pool}, which cannot stop a task: "
                f"{', and '.join(said)}.",
                "Run these tasks in a prefork pool (a queue of their own and `-P prefork`), or let "
                "them end by themselves: timeouts for whatever they wait for, and touch(), which "
                "says when an attempt was taken away.",
            )


def _prefetch(
    tasks: Sequence[TaskSetup], workers: Sequence[WorkerSetup], *, gives_back: bool
) -> Iterator[Finding]:
    longest = {task.name: _longest(task, workers) for task in tasks}
    long = sorted(name for name, seconds in longest.items() if (seconds or 0) >= _LONG_SECONDS)
    greedy = [one for one in workers if one.prefetch == 0]
    if greedy and tasks:
        yield Finding(
            "celery_reliable.prefetch_holds_work",
            "warning",
            f"The prefetch multiplier of {listed([one.where for one in greedy])} is 0: a worker "
            "fetches all that waits, whatever it can run.",
            "Set worker_prefetch_multiplier = 1.",
        )
    hasty = [
        one
        for one in workers
        if (one.prefetch or 0) > 1 and not (gives_back and one.pool in _GIVES_BACK)
    ]
    if hasty and long:
        held = [
            f"{one.where} ({one.prefetch} for each of {one.slots or 'its'} slots)" for one in hasty
        ]
        named = [f"{name} ({longest[name]:g} s)" for name in long]
        yield Finding(
            "celery_reliable.prefetch_holds_work",
            "warning",
            f"Tasks may run for long: {listed(named)}. And more is fetched than can run: "
            f"{listed(held)}.",
            "Set worker_prefetch_multiplier = 1 (or --prefetch-multiplier 1) where these run.",
        )


def _results(
    tasks: Sequence[TaskSetup],
    workers: Sequence[WorkerSetup],
    config: ReliableConfig,
    expire_seconds: float | None,
    fills_ledger: bool,
) -> Iterator[Finding]:
    if expire_seconds is None:
        return
    if not expire_seconds:
        if fills_ledger:
            yield Finding(
                "celery_reliable.results_never_expire",
                "warning",
                "result_expires is 0 (never), and results are on the Redis of the ledger, which "
                "deletes nothing by itself.",
                "Set result_expires, ignore_result=True where nobody reads a result, or a result "
                "backend on another server.",
            )
        return
    needs = {"ten QUEUED_SECONDS, within which a result is looked for": config.queued_seconds * 10}
    for task in tasks:
        if task.once_for_seconds:
            needs[f"once_for_seconds of {task.name}"] = task.once_for_seconds
        if seconds := _longest(task, workers):
            needs[f"what {task.name} may take"] = seconds
    longer = sorted(needs, key=lambda name: -needs[name])
    short = [f"{name} ({needs[name]:g} s)" for name in longer if needs[name] > expire_seconds]
    if tasks and short:
        yield Finding(
            "celery_reliable.results_expire_early",
            "warning",
            f"result_expires is {expire_seconds:g} seconds, less than {listed(short)}.",
            f"Set result_expires to more than {needs[longer[0]]:g}.",
        )


def _visibility(workers: Sequence[WorkerSetup], config: ReliableConfig) -> Iterator[Finding]:
    horizon = config.eta_horizon_seconds
    short = [
        f"{one.where} ({one.visibility_timeout_seconds:g} s)"
        for one in workers
        if one.visibility_timeout_seconds is not None and one.visibility_timeout_seconds < horizon
    ]
    if short:
        yield Finding(
            "celery_reliable.visibility_timeout_short",
            "warning",
            f"The visibility_timeout of {listed(short)} is shorter than ETA_HORIZON_SECONDS "
            f"({horizon:g} s), for which a task with an ETA may wait in a worker.",
            "Leave visibility_timeout out of broker_transport_options: workers with the package "
            "need none, and others are well with Celery's hour.",
        )


def _grace(
    tasks: Sequence[TaskSetup], workers: Sequence[WorkerSetup], grace: float | None
) -> Iterator[Finding]:
    if grace is None:
        return
    too_long = [one for one in workers if (one.soft_shutdown_seconds or 0) >= grace]
    if too_long:
        named = [f"{one.where} ({one.soft_shutdown_seconds:g} s)" for one in too_long]
        yield Finding(
            "celery_reliable.grace_too_short",
            "warning",
            f"The soft shutdown of {listed(named)} takes as long as the {grace:g} seconds that "
            "the orchestrator waits, or longer.",
            f"Set worker_soft_shutdown_timeout to at least five seconds less than {grace:g}, or "
            "the grace period (terminationGracePeriodSeconds, stop_grace_period, TimeoutStopSec) "
            "to more.",
        )
    warm = [one.where for one in workers if one.is_sigterm_soft is False and one not in too_long]
    longest = {task.name: _longest(task, workers) for task in tasks if task.is_reliable}
    long = [
        f"{name} ({'no limit' if seconds is None else f'{seconds:g} s'})"
        for name, seconds in longest.items()
        if seconds is None or seconds > grace
    ]
    if warm and long:
        is_known = any((seconds or 0) > grace for seconds in longest.values())
        yield Finding(
            "celery_reliable.grace_too_short",
            "warning" if is_known else "info",
            f"On SIGTERM {listed(warm)} waits until what runs has ended, which may take longer "
            f"than the {grace:g} seconds that the orchestrator waits: {listed(long)}.",
            "Set REMAP_SIGTERM=SIGQUIT in the worker's environment and "
            f"worker_soft_shutdown_timeout to some {max(1.0, grace - 5):g} seconds: what still "
            "runs then is given back, and nobody is charged.",
        )


def _limit_of(task: TaskSetup, workers: Iterable[WorkerSetup]) -> float | None:
    """Return Celery's limit for a task, the shortest of where it may run."""
    if task.time_limit:
        return task.time_limit
    limits = [one.time_limit for one in workers if one.time_limit]
    return min(limits) if limits else None


def _longest(task: TaskSetup, workers: Iterable[WorkerSetup]) -> float | None:
    """Return for how long a task may run without a `touch`; None: nothing says."""
    limits = [one for one in (task.time_to_run_seconds, task.time_limit) if one]
    if not limits:
        limits = [one.time_limit for one in workers if one.time_limit][:1]
    return min(limits) if limits else None


def _by_pool(workers: Iterable[WorkerSetup]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in workers:
        found.setdefault(one.pool, []).append(one.where)
    return found
