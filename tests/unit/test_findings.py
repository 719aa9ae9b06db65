"""The table of findings by facts alone: each rule on facts that are right but for one thing."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import requires
from typing import Any

import pytest
from packaging.requirements import Requirement

from celery_reliable.findings import (
    DURABILITY,
    FLEET,
    NOT_LOOKED_AT,
    SERVER,
    SETUP,
    START,
    SUPPORTED,
    TABLE,
    Finding,
    ServerFacts,
    Setup,
    TaskSetup,
    WorkerSetup,
    look,
    neighbours,
)
from celery_reliable.settings import ReliableConfig
from tests.support.promises import promise

TASK = TaskSetup(name="shop.bill")
WORKER = WorkerSetup(
    where="one@here",
    pool="prefork",
    visibility_seconds=3600.0,
    version="1.2",
    versions={"celery": "5.7.0", "kombu": "5.7.1", "redis": "7.0"},
    clock_ahead_seconds=0.2,
)
DAY = 24 * 3600.0
APP = Setup(
    config=ReliableConfig(),
    scheme="redis",
    is_redis=True,
    is_unprotected=False,
    here=replace(WORKER, where="here"),
    tasks=[TASK],
    workers=[WORKER],
    results_expire_seconds=DAY,
)
SOUND = ServerFacts(
    version="6.2.14",
    role="master",
    maxmemory=1 << 30,
    maxmemory_policy="noeviction",
    appendonly=True,
    appendfsync="always",
    save="",
    is_cluster=False,
    replicas=0,
    min_replicas=0,
)

TTR = {"time_to_run_seconds": 30.0}
SWEEP, ROWS = "celery_reliable.sweep", "celery_reliable.rows"


def names(found: list[Finding]) -> list[str]:
    """What was found; each says what happens to who ignores it, and how to mend it."""
    assert all(one.ignored and one.message and one.hint for one in found)
    return [f"{one.severity} {one.name}" for one in found]


def of(task: dict[str, Any], worker: dict[str, Any], app: dict[str, Any]) -> list[Finding]:
    """What is found in an app with one task and one worker."""
    tasks, workers = [replace(TASK, **task)], [replace(WORKER, **worker)]
    ours = {name: value for name, value in app.items() if name.upper() in ReliableConfig.names()}
    config = replace(APP.config, **ours)
    others = {name: value for name, value in app.items() if name not in ours}
    setup = replace(APP, config=config, tasks=tasks, workers=workers, **others)
    return [*look(START, setup), *look(SETUP, setup), *look(FLEET, setup)]


@pytest.mark.parametrize(
    ("task", "worker", "app", "found"),
    [
        ({}, {}, {}, []),
        # Where the ledger is.
        ({}, {}, {"is_redis": False, "is_unprotected": True}, ["warning unprotected"]),
        ({}, {}, {"start_method": "spawn"}, ["error pool_does_not_fork"]),
        # A limit that ends the attempt first, wherever it is set.
        ({**TTR, "time_limit": 30.0}, {}, {}, ["warning time_limit_before_time_to_run"]),
        (TTR, {"time_limit": 20.0}, {}, ["warning time_limit_before_time_to_run"]),
        # Pools that stop nothing.
        (TTR, {"pool": "thread"}, {}, ["warning pool_cannot_stop"]),
        # Results that are gone too early.
        ({}, {}, {"results_expire_seconds": 599.0}, ["warning results_expire_early"]),
        ({"once_for_seconds": 2 * DAY}, {}, {}, ["warning results_expire_early"]),
        # Workers that do not fit.
        ({}, {"version": ""}, {}, ["warning worker_of_another_version"]),
        ({}, {"versions": {"celery": "5.6.2"}}, {}, ["error version_unsupported"]),
        ({}, {"versions": {"redis": "9.0", "kombu": "5.7.0rc1"}}, {}, []),
        ({}, {"clock_ahead_seconds": -5.0}, {}, ["warning clock_differs"]),
        ({}, {"no_witness": "WITNESS_SECONDS is 0."}, {}, ["warning no_witness"]),
        # What beat sends.
        ({}, {}, {"schedule": {"a": SWEEP, "b": ROWS, "c": "shop.bill"}}, []),
        ({"has_row": True}, {}, {"schedule": {"a": SWEEP}}, ["warning rows_unscheduled"]),
    ],
)
def test_what_is_found_in_a_set_up(
    task: dict[str, Any], worker: dict[str, Any], app: dict[str, Any], found: list[str]
) -> None:
    assert names(of(task, worker, app)) == found


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ({"is_requeued_when_lost": True}, []),
        ({"is_requeued_when_lost": True, "acks_late": True}, ["plain_task_in_circles"]),
        ({"time_limit": 3600.0, "acks_late": True}, []),
        ({"time_limit": 3601.0, "acks_late": True}, ["plain_task_outlives_visibility"]),
        ({"idle_options": ("object_id",)}, ["options_without_base"]),
    ],
)
def test_what_is_found_of_a_task_with_another_base(task: dict[str, Any], found: list[str]) -> None:
    told = names(of({"is_reliable": False, **task}, {}, {}))

    assert told == [*(f"warning {name}" for name in found), "info plain_tasks"]
    assert names(of(task, {}, {})) == []


@promise("as-durable-as-redis", "failover-loses")
@pytest.mark.parametrize(
    ("changed", "found", "words"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "error redis_evicts", ""),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 0}, "warning redis_evicts", ""),
        ({"is_cluster": True}, "error redis_cluster", ""),
        ({"role": "slave"}, "error redis_is_replica", ""),
        ({"version": "6.0.16"}, "error redis_too_old", ""),
        # What a power cut or a failover costs.
        ({"appendonly": False}, "warning redis_not_durable", "every task"),
        (
            {"appendonly": False, "save": "3600 1 300 100 60 10000"},
            "warning redis_not_durable",
            "publications of up to 3600 seconds",
        ),
        (
            {"appendonly": False, "save": "60 10000"},
            "warning redis_not_durable",
            "fewer than 10000 changes",
        ),
        ({"appendfsync": "everysec"}, "info redis_loses_seconds", "two at most"),
        ({"appendfsync": "no"}, "warning redis_loses_seconds", "half a minute"),
        ({"replicas": 1}, "warning failover_loses", "ten seconds"),
        ({"has_sentinel": True}, "warning failover_loses", "ten seconds"),
    ],
)
def test_what_is_found_on_a_server(changed: dict[str, Any], found: str, words: str) -> None:
    assert look([*SERVER, *DURABILITY], SOUND) == []
    (finding,) = look([*SERVER, *DURABILITY], replace(SOUND, **changed))

    assert names([finding]) == [found]
    assert words in finding.message


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"maxmemory_policy": None}, "eviction"),
        ({"appendfsync": None}, "appendfsync"),
        ({"appendonly": False, "save": None}, "save"),
        ({"min_replicas": None, "replicas": 1}, "min-replicas-to-write"),
        ({"version": None}, "version"),
    ],
)
def test_what_a_server_hides_is_no_all_clear(changed: dict[str, Any], words: str) -> None:
    (finding,) = look([NOT_LOOKED_AT], replace(SOUND, **changed))

    assert names([finding]) == ["warning not_looked_at"]
    assert words in finding.message
    assert look([NOT_LOOKED_AT], replace(SOUND, save=None, min_replicas=None)) == []


@promise("one-namespace")
def test_another_app_in_the_namespace_is_named() -> None:
    own = ("shop", "redis://a:6379/0")
    others = frozenset(
        {own, ("", ""), ("stock", "redis://b:6379/5"), ("shop", "redis://alias:6379/0")}
    )

    same, other = neighbours(own, others, "reliable")

    assert names([same, other]) == ["info namespace_shared", "warning namespace_shared"]
    assert all(word in other.message for word in ("shop", "stock", "redis://b:6379/5"))
    assert "NAMESPACE" in other.hint


def test_the_range_of_releases_is_that_of_the_package_itself() -> None:
    asked = {
        one.name: one.specifier
        for one in map(Requirement, requires("celery-reliable") or ())
        if one.marker is None
    }

    assert set(SUPPORTED) == {"celery", "kombu", "redis"} <= set(asked)
    for package, (least, below) in SUPPORTED.items():
        assert str(asked[package]) in (f">={least}", f"<{below},>={least}")


def test_codes_and_names_are_used_once() -> None:
    assert len({entry.code for entry in TABLE}) == len({entry.name for entry in TABLE})
    assert len({entry.code for entry in TABLE}) == len(TABLE)
    for entry in TABLE:
        assert entry.code[0] == ("E" if entry.severity == "error" else "W")
