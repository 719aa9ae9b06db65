"""The part of the table that is about a set-up: settings, tasks, workers, schedule, packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from celery_reliable.findings.entries import NO_START, Entry, Seen, Setup, TaskSetup, listed

__all__ = [
    "API_SETTINGS_WRONG",
    "NAME_MISSING",
    "NO_REDIS",
    "ROWS_UNSCHEDULED",
    "SETTINGS_WRONG",
    "SETUP",
    "START",
    "UNPROTECTED",
]

#: Pools that do not end an attempt that was taken away; and without Celery's limit.
_ATTEMPTS_GO_ON: Final = ("thread", "solo", "gevent")
_WITHOUT_LIMIT: Final = ("thread", "solo")
_ROWS: Final = "celery_reliable.rows"


def _by(names: Iterable[str], **values: Any) -> Seen:
    """Return the values of a finding about these names; None where there are none."""
    found = [*names]
    return {"names": listed(found), **values} if found else None


def _plain(
    chosen: Callable[[TaskSetup], object], shown: Callable[[TaskSetup], str] = lambda one: one.name
) -> Callable[[Setup], Seen]:
    """Return a predicate of the tasks with another base that are chosen."""
    return lambda setup: _by(
        shown(one) for one in setup.tasks if not one.is_reliable and chosen(one)
    )


def _outlives(setup: Setup) -> Seen:
    limits = {
        one.name: one.time_limit or setup.here.time_limit or 0.0
        for one in setup.tasks
        if one.acks_late and not one.is_reliable and setup.is_redis
    }
    told = (one.visibility_seconds for one in (setup.here, *setup.workers))
    # Celery's hour where nobody says.
    timeout = min((seconds for seconds in told if seconds is not None), default=3600.0)
    longer = [name for name, limit in limits.items() if limit > timeout]
    longest = max(limits.values(), default=0.0)
    return _by(longer, timeout=f"{timeout:g}", longest=f"{longest:g}")


def _spawns(setup: Setup) -> Seen:
    if setup.here.pool != "prefork" or setup.start_method == "fork":
        return None
    do = "Set worker_pool_start_method to 'fork'"
    if setup.is_default_method:
        do = (
            "Call billiard.set_start_method('fork', force=True) in the module of your app (on "
            "macOS workers also need OBJC_DISABLE_INITIALIZE_FORK_SAFETY=YES)"
        )
    return {"method": repr(setup.start_method), "do": do}


def _cut_short(setup: Setup) -> Seen:
    def limit(task: TaskSetup) -> float:
        of_workers = (one.time_limit for one in setup.workers if one.time_limit)
        return task.time_limit or min(of_workers, default=float("inf"))

    return _by(
        f"{one.name} ({limit(one):g} s of {one.time_to_run_seconds:g} s)"
        for one in setup.ours
        if one.time_to_run_seconds and one.time_to_run_seconds >= limit(one)
    )


def _cannot_stop(setup: Setup) -> Iterator[dict[str, Any]]:
    for pool in dict.fromkeys(one.pool for one in setup.workers):
        goes_on = [one.name for one in setup.ours if one.time_to_run_seconds]
        unlimited = [one.name for one in setup.tasks if one.time_limit]
        said = []
        if goes_on and pool in _ATTEMPTS_GO_ON:
            said.append(f"an attempt over its time_to_run_seconds runs on ({listed(goes_on)})")
        if unlimited and pool in _WITHOUT_LIMIT:
            said.append(f"time_limit is not enforced ({listed(unlimited)})")
        if said:
            names = listed([one.where for one in setup.workers if one.pool == pool])
            yield {"names": names, "pool": pool, "what": ", and ".join(said)}


def _expire_early(setup: Setup) -> Seen:
    needs = {"ten QUEUED_SECONDS": setup.config.queued_seconds * 10}
    for task in setup.ours:
        needs[f"once_for_seconds of {task.name}"] = task.once_for_seconds or 0.0
        needs[f"the time that {task.name} may take"] = setup.taking[task.name] or 0.0
    expire = setup.results_expire_seconds
    longer = sorted(needs, key=lambda name: -needs[name])
    short = [f"{name} ({needs[name]:g} s)" for name in longer if expire and needs[name] > expire]
    return _by(short * bool(setup.ours), expire=f"{expire or 0:g}", most=f"{needs[longer[0]]:g}")


SETTINGS_WRONG: Final[Entry[None]] = Entry("E001", "settings_wrong", "error",
    "CELERY_RELIABLE is wrong: {problem}",
    "Change CELERY_RELIABLE (app.conf.reliable without Django).", NO_START)  # fmt: skip
API_SETTINGS_WRONG: Final[Entry[None]] = Entry("E004", "api_settings_wrong", "error",
    "CELERY_RELIABLE_API is wrong: {problem}",
    "Change CELERY_RELIABLE_API.",
    "Each request to the API is answered with an error.")  # fmt: skip
NO_REDIS: Final[Entry[None]] = Entry("E002", "no_redis", "error",
    "The ledger has no Redis: {problem}",
    "Set REDIS_URL in CELERY_RELIABLE (app.conf.reliable without Django).", NO_START)  # fmt: skip
UNPROTECTED: Final[Entry[Setup]] = Entry("W002", "unprotected", "warning",
    "The broker is {scheme}://, which lives in one process: reliable tasks are published and run "
    "by Celery alone.",
    "This is for tests. Give the tasks a Redis (as the broker or by REDIS_URL) everywhere else.",
    "No promise holds: a killed process takes its tasks along.",
    lambda setup: setup.is_unprotected and not setup.is_eager and {"scheme": setup.scheme},
)  # fmt: skip
NAME_MISSING: Final[Entry[None]] = Entry("E010", "name_missing", "error",
    "{fault}. Without it {without}.",
    "Install releases that celery-reliable was checked on, or a celery-reliable that was checked "
    "on these.",
    "A worker does not start. As a warning: what the message names is not protected.")  # fmt: skip

ROWS_UNSCHEDULED: Final[Entry[Setup]] = Entry("W031", "rows_unscheduled", "warning",
    f"Rows have tasks ({{names}}), and the beat schedule has no {_ROWS}.",
    f'Add {{{{"task": "{_ROWS}", "schedule": 60.0}}}} to beat_schedule.',
    "A row whose publisher is killed between commit and publication waits for ever, and the "
    "row of a dead task says for ever that it runs.",
    lambda setup: not setup.is_schedule_elsewhere
    and _ROWS not in setup.schedule.values()
    and _by(one.name for one in setup.tasks if one.has_row))  # fmt: skip

#: What a worker looks at before it starts.
START: Final[tuple[Entry[Setup], ...]] = (
    Entry("E027", "pool_not_supported", "error",
        "The pool eventlet is not supported: a task that computes would hold up the heartbeat of "
        "its worker.",
        "Use --pool gevent, or another pool.",
        "No worker with this pool starts.",
        lambda setup: setup.here.pool == "eventlet"),
    Entry("E011", "pool_does_not_fork", "error",
        "The processes of this prefork pool would be started by {method}. Only forked processes "
        "know under which worker's lease they run.",
        "{do}, or use another pool, such as --pool threads.",
        "No worker with a prefork pool starts.", _spawns),
    UNPROTECTED,
    Entry("W012", "options_without_base", "warning",
        "Tasks with options of ReliableTask, but another base: {names}.",
        "Give the tasks base=ReliableTask, or leave the options out.",
        "The options do nothing: these are Celery's tasks.",
        _plain(
            lambda one: one.idle_options, lambda one: f"{one.name} ({', '.join(one.idle_options)})"
        )),
    Entry("W013", "plain_task_in_circles", "warning",
        "Plain tasks with acks_late and reject_on_worker_lost: {names}.",
        "Give them base=ReliableTask, or switch reject_on_worker_lost off.",
        "A message that kills its process is requeued, and kills process after process for ever.",
        _plain(lambda one: one.acks_late and one.is_requeued_when_lost)),
    Entry("W014", "plain_task_outlives_visibility", "warning",
        "visibility_timeout is {timeout} seconds, and plain tasks with acks_late may run for up to "
        "{longest}: {names}.",
        "Set visibility_timeout in broker_transport_options to more than {longest}, or give the "
        "tasks base=ReliableTask.",
        "Such a task runs twice at once, and again each time the timeout is over.", _outlives),
)  # fmt: skip

#: What only the doctor looks at.
SETUP: Final[tuple[Entry[Setup], ...]] = (
    Entry("W018", "results_expire_early", "warning",
        "result_expires is {expire} seconds, less than {names}.",
        "Set result_expires to more than {most}.",
        "Callers wait for the result in vain, chords do not end, and a task that a worker without "
        "the package ran is run again.", _expire_early),
    Entry("W020", "time_limit_before_time_to_run", "warning",
        "Tasks whose time_limit ends before their time_to_run_seconds: {names}.",
        "Set time_limit (task_time_limit, --time-limit) well above time_to_run_seconds and "
        "whatever touch() may add to it, or leave one of the two out.",
        "Celery's limit kills the attempt and the task fails: it does not run again, and touch() "
        "does not help.", _cut_short),
    Entry("W021", "pool_cannot_stop", "warning",
        "The pool of {names} is {pool}, which cannot stop a task: {what}.",
        "Run these tasks in a prefork pool (with a queue of their own), or give them timeouts and "
        "touch(), which raises in an attempt that was taken away.",
        "A task that hangs keeps its slot for ever. Its successor, and whatever needs its object, "
        "waits.", _cannot_stop),
    Entry("W030", "plain_tasks", "info",
        "Tasks of the app have another base than ReliableTask: {names}.",
        "Give those that must not be lost base=ReliableTask.",
        "These are as safe as with Celery alone: a killed worker's are lost, or come back after "
        "the visibility timeout.", _plain(lambda one: True)),
    ROWS_UNSCHEDULED,
)  # fmt: skip
