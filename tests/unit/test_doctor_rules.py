"""What the doctor judges by facts alone: each rule on a set-up that is well but for one thing."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import requires
from typing import Any

import pytest
from celery import Celery
from packaging.requirements import Requirement

from celery_reliable.doctor import CATALOGUE, entry_of
from celery_reliable.doctor.fleet import (
    check_clock,
    check_fleet,
    check_versions,
    supported,
)
from celery_reliable.doctor.installation import check_extras, check_pool
from celery_reliable.doctor.schedule import check_rows, check_schedule
from celery_reliable.doctor.servers import unseen
from celery_reliable.doctor.setups import (
    PACKAGES,
    TaskSetup,
    WorkerSetup,
    setup_of_settings,
)
from celery_reliable.doctor.times import check_times
from celery_reliable.model import Finding
from celery_reliable.settings import ReliableConfig, ServerFacts, acl_words

TASK = TaskSetup(name="shop.bill")
WORKER = WorkerSetup(
    where="one@here",
    slots=2,
    prefetch=1,
    soft_shutdown_seconds=0.0,
    is_sigterm_soft=False,
    visibility_timeout_seconds=3600.0,
    version="1.2",
    versions={"celery": "5.7.0", "kombu": "5.7.1", "redis": "7.0"},
    clock_ahead_seconds=0.2,
)
BOUNDS = {"celery": ("5.6.3", "6"), "kombu": ("5.7", "6"), "redis": ("6.4", "")}
DAY = 24 * 3600.0


def names(found: list[Finding]) -> list[str]:
    """What was found; each is in the catalogue, and says how to mend it."""
    assert all(entry_of(one).ignored and one.message and one.hint for one in found)
    return [f"{one.level} {entry_of(one).name}" for one in found]


def by_times(
    task: dict[str, Any],
    worker: dict[str, Any],
    *,
    expires: float | None = DAY,
    is_redis: bool = False,
    fills_ledger: bool = False,
    grace: float | None = None,
) -> list[Finding]:
    return check_times(
        [replace(TASK, **task)],
        [replace(WORKER, **worker)],
        ReliableConfig(),
        results_expire_seconds=expires,
        is_redis_broker=is_redis,
        fills_ledger=fills_ledger,
        grace_seconds=grace,
    )


LONG = {"time_limit": 600.0}
TTR = {"time_to_run_seconds": 30.0}


@pytest.mark.parametrize(
    ("task", "worker", "more", "found"),
    [
        ({}, {}, {}, []),
        (LONG, {}, {}, []),
        (TTR, {}, {}, []),
        # A limit that ends the attempt first, wherever it is said.
        ({**TTR, "time_limit": 30.0}, {}, {}, ["warning time_limit_before_time_to_run"]),
        (TTR, {"time_limit": 20.0}, {}, ["warning time_limit_before_time_to_run"]),
        ({**TTR, "time_limit": 40.0}, {"time_limit": 20.0}, {}, []),
        ({**TTR, "time_limit": 20.0, "is_reliable": False}, {}, {}, []),
        # What stops nothing.
        (TTR, {"pool": "thread"}, {}, ["warning pool_cannot_stop"]),
        (TTR, {"pool": "solo"}, {}, ["warning pool_cannot_stop"]),
        (TTR, {"pool": "gevent"}, {}, ["warning pool_cannot_stop"]),
        (LONG, {"pool": "thread"}, {}, ["warning pool_cannot_stop"]),
        (LONG, {"pool": "gevent"}, {}, []),
        ({}, {"pool": "thread"}, {}, []),
        # More is fetched than runs, and what runs is long.
        (LONG, {"prefetch": 4}, {}, ["warning prefetch_holds_work"]),
        ({}, {"prefetch": 4, "time_limit": 60.0}, {}, ["warning prefetch_holds_work"]),
        ({"time_limit": 59.0}, {"prefetch": 4}, {}, []),
        # Unless it goes back to its queue, which not all pools can do.
        (LONG, {"prefetch": 4}, {"is_redis": True}, []),
        (
            LONG,
            {"prefetch": 4, "pool": "gevent"},
            {"is_redis": True},
            [
                "warning prefetch_holds_work",
            ],
        ),
        ({}, {"prefetch": 0}, {"is_redis": True}, ["warning prefetch_holds_work"]),
        ({}, {"prefetch": 4}, {}, []),
        ({**LONG, "is_reliable": False}, {"prefetch": 4}, {}, []),
        ({}, {"prefetch": 0}, {}, ["warning prefetch_holds_work"]),
        # Results that are gone too early, or never go.
        ({}, {}, {"expires": 599.0}, ["warning results_expire_early"]),
        ({}, {}, {"expires": 600.0}, []),
        ({"once_for_seconds": 2 * DAY}, {}, {}, ["warning results_expire_early"]),
        ({"time_limit": 601.0}, {}, {"expires": 600.0}, ["warning results_expire_early"]),
        ({}, {}, {"expires": None}, []),
        ({}, {}, {"expires": 0, "fills_ledger": True}, ["warning results_never_expire"]),
        ({}, {}, {"expires": 0}, []),
        # Redelivered while it waits for its ETA.
        ({}, {"visibility_timeout_seconds": 59.0}, {}, ["warning visibility_timeout_short"]),
        ({}, {"visibility_timeout_seconds": 60.0}, {}, []),
        # The orchestrator kills first.
        ({"time_limit": 25.0}, {}, {"grace": 30.0}, []),
        ({"time_limit": 31.0}, {}, {"grace": 30.0}, ["warning grace_too_short"]),
        ({"time_limit": 31.0}, {"is_sigterm_soft": True}, {"grace": 30.0}, []),
        ({"time_limit": 31.0}, {}, {}, []),
        ({}, {}, {"grace": 30.0}, ["info grace_too_short"]),
        ({}, {"is_sigterm_soft": None}, {"grace": 30.0}, []),
        (
            {},
            {"soft_shutdown_seconds": 30.0, "is_sigterm_soft": True},
            {"grace": 30.0},
            ["warning grace_too_short"],
        ),
        ({}, {"soft_shutdown_seconds": 25.0, "is_sigterm_soft": True}, {"grace": 30.0}, []),
    ],
)
def test_times_that_do_not_fit(
    task: dict[str, Any], worker: dict[str, Any], more: dict[str, Any], found: list[str]
) -> None:
    assert names(by_times(task, worker, **more)) == found


def test_what_does_not_fit_is_named() -> None:
    (limit,) = by_times({**TTR, "time_limit": 20.0}, {})
    (prefetch,) = by_times(LONG, {"prefetch": 4})

    assert "shop.bill (20 s of 30 s)" in limit.message
    assert "shop.bill (600 s)" in prefetch.message
    assert "one@here (4 for each of 2 slots)" in prefetch.message


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"version": ""}, ["warning worker_of_another_version"]),
        ({"version": "1.1"}, ["warning worker_of_another_version"]),
        ({"versions": {"celery": "5.6.2"}}, ["error version_unsupported"]),
        ({"versions": {"celery": "6.0"}}, ["warning version_unsupported"]),
        ({"versions": {"redis": "9.0", "kombu": "5.7.0rc1"}}, []),
        ({"clock_ahead_seconds": 5.0}, ["warning clock_differs"]),
        ({"clock_ahead_seconds": -3600.0}, ["warning clock_differs"]),
        ({"clock_ahead_seconds": None}, []),
        ({"no_witness": "WITNESS_SECONDS is 0."}, ["warning no_witness"]),
    ],
)
def test_workers_that_do_not_fit(changed: dict[str, Any], found: list[str]) -> None:
    assert names(check_fleet([WORKER, replace(WORKER, **changed)], "1.2", BOUNDS)) == found


def test_the_range_of_releases_is_that_of_the_package_itself() -> None:
    asked = {
        one.name: one.specifier
        for one in map(Requirement, requires("celery-reliable") or ())
        if one.marker is None
    }
    bounds = supported()

    assert bounds is not None
    assert set(bounds) == set(PACKAGES) <= set(asked)
    for package, (least, below) in bounds.items():
        assert str(asked[package]) in (f">={least}", f"<{below},>={least}")


def test_the_hint_is_what_pip_takes() -> None:
    (old,) = check_versions("Here", {"kombu": "5.6.2"}, BOUNDS)
    assert old.hint == 'pip install "kombu>=5.7,<6"'


def test_a_clock_says_in_which_direction_it_is_off() -> None:
    (ahead,) = check_clock("this host", 61.4)
    (behind,) = check_clock("this host", -61.4)

    assert "61 seconds ahead of" in ahead.message
    assert "61 seconds behind" in behind.message


SWEEP = {"task": "celery_reliable.sweep", "schedule": 30.0}
ROWS = {"task": "celery_reliable.rows", "schedule": 60.0}
GREENLETS = replace(WORKER, pool="gevent")


@pytest.mark.parametrize(
    ("schedule", "workers", "found"),
    [
        ({}, [WORKER], []),
        ({"a": SWEEP}, [WORKER], []),
        ({"a": SWEEP}, [GREENLETS], []),
        ({"a": SWEEP, "b": SWEEP}, [WORKER], ["warning sweep_scheduled_twice"]),
        ({}, [GREENLETS], ["warning sweep_unscheduled"]),
        ({}, [GREENLETS, WORKER], []),
        (
            {"a": {"task": "celery_reliable.sweeper", "schedule": 1}},
            [WORKER],
            ["warning sweep_misnamed"],
        ),
        ({"a": {"task": "shop.bill", "schedule": 1}}, [WORKER], []),
        ({"a": ROWS}, [WORKER], []),
    ],
)
def test_schedules(schedule: dict[str, Any], workers: list[WorkerSetup], found: list[str]) -> None:
    assert names(list(check_schedule(schedule, workers))) == found


@pytest.mark.parametrize(
    ("schedule", "rows", "found"),
    [
        ({}, [], []),
        ({"a": SWEEP}, ["shop.bill"], ["warning rows_unscheduled"]),
        ({"a": ROWS}, ["shop.bill"], []),
    ],
)
def test_rows_that_nobody_looks_after(
    schedule: dict[str, Any], rows: list[str], found: list[str]
) -> None:
    assert names(list(check_rows(schedule, rows))) == found
    assert not list(check_rows(schedule, rows, "django_celery_beat.schedulers:DatabaseScheduler"))


def test_pools_that_do_not_fork() -> None:
    assert names(list(check_pool("prefork", {"worker_pool_start_method": "spawn"}))) == [
        "error pool_does_not_fork"
    ]
    assert not list(check_pool("prefork", {"worker_pool_start_method": "fork"}))
    assert not list(check_pool("thread", {"worker_pool_start_method": "spawn"}))
    assert names(list(check_pool("eventlet", {}))) == ["error pool_not_supported"]


@pytest.mark.parametrize(
    ("named", "pool"),
    [
        (None, "prefork"),
        ("processes", "prefork"),
        ("celery.concurrency.gevent:TaskPool", "gevent"),
        ("celery_reliable.pool:TaskPool", "prefork"),
        ("custom", "prefork"),
    ],
)
def test_of_which_kind_a_pool_is(
    named: str | None, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERY_CUSTOM_WORKER_POOL", "celery_reliable.pool:TaskPool")
    app = Celery(set_as_current=False)
    app.conf.worker_pool = named
    assert setup_of_settings(app).pool == pool


def test_nothing_is_asked_for_that_is_not_there() -> None:
    assert list(check_extras({"PROMETHEUS_MULTIPROC_DIR": "/tmp"})) == []


TOLD = ServerFacts(
    version="7.0.0",
    role="master",
    maxmemory=0,
    maxmemory_policy="noeviction",
    appendonly=True,
    appendfsync="always",
    save="",
    replicas=0,
    min_replicas=0,
)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"maxmemory_policy": None}, "eviction"),
        ({"maxmemory": None}, "eviction"),
        ({"appendfsync": None}, "appendfsync"),
        ({"appendonly": None}, "appendonly"),
        ({"appendonly": False, "save": None}, "save"),
        ({"min_replicas": None, "replicas": 1}, "min-replicas-to-write"),
        ({"min_replicas": None, "has_sentinel": True}, "min-replicas-to-write"),
        ({"min_replicas": None, "replicas": None}, "min-replicas-to-write"),
        ({"version": None}, "version"),
        ({"role": None}, "role"),
    ],
)
def test_what_a_server_hides_is_no_all_clear(changed: dict[str, Any], words: str) -> None:
    (finding,) = unseen(replace(TOLD, **changed))

    assert names([finding]) == ["warning not_looked_at"]
    assert words in finding.message


def test_what_does_not_matter_may_be_hidden() -> None:
    assert not list(unseen(TOLD))
    assert not list(unseen(replace(TOLD, save=None, min_replicas=None)))


def test_rights_are_given_in_redis_own_words() -> None:
    rule = ("~{reliable:0}:*", "~celery*", "+get")
    missing = ["HSCAN", "the key {reliable:0}:x", "the key celery", "the key other", "the channel"]

    assert acl_words([*missing[:-1], "the channel c"], rule) == [
        "+hscan",
        "~{reliable:0}:*",
        "~celery*",
        "~other*",
        "&*",
    ]


def test_codes_and_names_are_used_once() -> None:
    assert len({entry.code for entry in CATALOGUE}) == len(CATALOGUE)
    assert len({entry.name for entry in CATALOGUE}) == len(CATALOGUE)
