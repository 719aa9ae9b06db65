"""A table of faults in a set-up, each made on real parts: the doctor finds it, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import redis
from celery import Celery, Task, _state
from celery.worker.worker import WorkController

from celery_reliable import ConfigurationWarning, ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.doctor import examine
from tests.conftest import StartRedis
from tests.integration.conftest import Project, Start
from tests.support.acl import granted
from tests.support.faketime import SteppingServer, faketime_library
from tests.support.redis_server import RedisServer, redis_binary
from tests.support.sentinel import Sentinel, start_replica
from tests.support.servers import REDIS_6
from tests.support.serving import ended

#: A power cut costs nothing.
DURABLE = {"appendonly": "yes", "appendfsync": "always", "save": ""}
#: Where the tasks of one app become those of every app of the process.
_SHARES_TASKS = ("celery.app", "celery.app.base")
SWEEP = {"task": "celery_reliable.sweep", "schedule": 30.0}


def found(app: Celery, **more: Any) -> set[str]:
    """The codes of what the doctor finds; whatever it finds has three parts, and no password."""
    with warnings.catch_warnings():
        # The definition of a task may say something too.
        warnings.simplefilter("ignore", ConfigurationWarning)
        findings = examine(app, patience_seconds=2, **more).findings
    for one in findings:
        assert one.message
        assert one.hint
        assert one.ignored
        assert "password@" not in one.message + one.hint
    return {one.code for one in findings}


@contextmanager
def shop(
    url: str,
    tasks: dict[str, dict[str, Any]] | None = None,
    reliable: dict[str, Any] | None = None,
    **conf: Any,
) -> Iterator[Celery]:
    """An app that is well but for what is given, with these tasks: by default a reliable one."""
    # Tasks that other tests of this process share with all apps are not the shop's.
    own = {one for one in _state._on_app_finalizers if one.__module__ not in _SHARES_TASKS}
    with patch.object(_state, "_on_app_finalizers", own):
        yield from _shop(url, tasks, reliable, **conf)


def _shop(
    url: str,
    tasks: dict[str, dict[str, Any]] | None,
    reliable: dict[str, Any] | None,
    **conf: Any,
) -> Iterator[Celery]:
    app = Celery("shop", broker=url, set_as_current=False)
    app.conf.worker_prefetch_multiplier = 1
    app.conf.reliable = reliable or {}
    app.conf.update(conf)
    for name, options in (tasks or {"bill": {}}).items():

        def body(order: int = 0) -> None: ...

        app.task(body, shared=False, **{"base": ReliableTask, "name": f"shop.{name}", **options})
    yield app
    reliable_of(app).close()
    app.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server for all of the table; each fault is taken back."""
    with RedisServer(tmp_path_factory.mktemp("doctor"), DURABLE) as running:
        yield running


def test_a_sound_set_up_has_none(server: RedisServer) -> None:
    url = server.url()

    with shop(url, result_backend=url, beat_schedule={"sweep": SWEEP}) as app:
        assert found(app, grace_seconds=None) == set()


@pytest.mark.parametrize(
    ("changed", "codes"),
    [
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, {"E005"}),
        ({"appendonly": "no"}, {"W008"}),
        ({"appendfsync": "everysec"}, {"W010"}),
    ],
)
def test_a_server_that_is_set_wrong(
    server: RedisServer, changed: dict[str, str], codes: set[str]
) -> None:
    client = server.client()
    before = {name: client.config_get(name)[name] for name in changed}
    try:
        for name, value in changed.items():
            client.config_set(name, value)
        with shop(server.url()) as app:
            assert found(app) == codes
    finally:
        for name, value in before.items():
            client.config_set(name, value)
    with shop(server.url()) as app:
        assert found(app) == set()


def test_a_replica(server: RedisServer) -> None:
    client = server.client()
    client.replicaof("127.0.0.1", 1)
    try:
        with shop(server.url()) as app:
            # One that has lost its primary answers nothing else.
            assert found(app) == {"E008", "W004"}
    finally:
        client.replicaof("NO", "ONE")


def test_a_failover_that_loses(start_redis: StartRedis, tmp_path: Path) -> None:
    master = start_redis(DURABLE)
    start_replica(master, start_redis)
    with ended(lambda: Sentinel(tmp_path, master)) as start:
        sentinel = start()
        options = {"broker_transport_options": sentinel.options}
        with shop(sentinel.url(), **options) as app:
            assert found(app) == {"W011"}
            master.client().config_set("min-replicas-to-write", 1)
            assert found(app) == set()


def test_a_user_of_results_behind_sentinel_who_lacks_a_right(
    server: RedisServer, start_redis: StartRedis, tmp_path: Path
) -> None:
    master = start_redis(DURABLE)
    start_replica(master, start_redis)
    with ended(lambda: Sentinel(tmp_path, master)) as start:
        sentinel = start()
        for without, codes in ((), set()), (("+setex",), {"E009"}):
            granted(master.client(), without=without)
            options = {"result_backend_transport_options": sentinel.options}
            results = f"sentinel://app:password@127.0.0.1:{sentinel.port}/0"
            with shop(server.url(), result_backend=results, **options) as app:
                assert found(app) == codes
                assert all("result backend" in one.message for one in examine(app).findings)


@pytest.mark.parametrize(
    ("without", "codes", "words"),
    [
        ("+hscan", {"E009"}, "+hscan"),
        ("~celery*", {"E009"}, "~celery*"),
        # What is hidden is said to be, beside what follows from it.
        ("+config|get", {"W004", "W010"}, "appendfsync"),
        ("+config|get +info", {"W004"}, "appendonly"),
    ],
)
def test_a_user_who_lacks_a_right(
    server: RedisServer, without: str, codes: set[str], words: str
) -> None:
    url = granted(server.client(), without=tuple(without.split()))

    with shop(url, result_backend=url) as app:
        assert found(app) == codes
        assert any(words in one.message + one.hint for one in examine(app).findings)


def test_the_whole_rule_is_printed_for_ones_own_queues(server: RedisServer) -> None:
    url = granted(server.client(), without=("+hscan", "+zcard"))

    with shop(url, task_default_queue="orders") as app:
        (finding, *_) = examine(app).findings
    rule = finding.hint.partition("needs: ")[2].split()
    assert {"~orders*", "+hscan", "+zcard", "resetkeys"} <= set(rule)
    server.client().execute_command("ACL", "SETUSER", "app", "reset", "on", ">password", *rule)

    with shop(url, task_default_queue="orders") as app:
        assert found(app) == set()


def test_a_server_that_cannot_be_reached_is_no_all_clear(server: RedisServer) -> None:
    away = f"redis://:secret@127.0.0.1:{server.port - 1}/0"

    with shop(away) as app:
        examined = examine(app, patience_seconds=0.2)
    assert {one.code for one in examined.findings} == {"W004"}
    assert examined.is_ledger_away
    assert not any("secret" in one.message for one in examined.findings)
    # One of three: what it would have said is missing, and the others have been looked at.
    with shop(server.url(), result_backend=away) as app:
        examined = examine(app)
    assert {one.code for one in examined.findings} == {"W004"}
    assert not examined.is_ledger_away


@pytest.mark.untraced("a script raises where a command is missing")
@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("ZREM", {"E012"}),
        pytest.param(
            # Redis 5 says this to redis-py 8 in these words, which a newer server has changed.
            *("HELLO", {"E006", "W004"}),
            marks=pytest.mark.skipif(
                redis.VERSION[0] < 8 or REDIS_6 is None,
                reason="redis-py begins with it from release 8 on; no Redis 6.2 is installed",
            ),
        ),
    ],
)
def test_a_server_without_a_command(
    command: str, codes: set[str], start_redis: StartRedis, tmp_path: Path
) -> None:
    binary = tmp_path / "server"
    binary.write_text(
        f'#!/bin/sh\nexec {REDIS_6 or redis_binary()} "$@" --rename-command {command} ""\n'
    )
    binary.chmod(0o755)
    server = start_redis(DURABLE, binary=binary)

    with shop(server.url()) as app:
        assert found(app) == codes


def test_a_namespace_of_a_later_release(server: RedisServer) -> None:
    with shop(server.url(), reliable={"NAMESPACE": "later"}) as app:
        server.client().hset(reliable_of(app).ledger.keys.meta, "format", 99)
        assert found(app) == {"E014"}


@pytest.mark.skipif(faketime_library() is None, reason="libfaketime is not installed")
def test_a_clock_that_is_off(tmp_path: Path) -> None:
    library = faketime_library()
    assert library is not None
    with SteppingServer(tmp_path, library) as server:
        for name, value in DURABLE.items():
            server.client().config_set(name, value)
        with shop(server.url()) as app:
            assert found(app) == set()
            server.set_off(3600)
            assert found(app) == {"W024"}


@dataclass(frozen=True)
class Fault:
    """Something that is wrong with an app."""

    codes: set[str]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    reliable: dict[str, Any] = field(default_factory=dict)
    conf: dict[str, Any] = field(default_factory=dict)
    grace_seconds: float | None = None
    url: str = ""


PLAIN: dict[str, Any] = {"base": Task, "acks_late": True}
FAULTS = {
    "a wrong setting": Fault({"E001"}, reliable={"LEASE_SECOND": 3}),
    "no Redis": Fault({"E002"}, url="amqp://127.0.0.1:1//"),
    "in memory": Fault({"W002"}, url="memory://"),
    "options without the base": Fault(
        {"W012", "W030"}, {"bill": {"base": Task, "object_id": "order"}}
    ),
    "in circles": Fault({"W013", "W030"}, {"bill": {**PLAIN, "reject_on_worker_lost": True}}),
    "outlives visibility": Fault({"W014", "W030"}, {"bill": {**PLAIN, "time_limit": 3601}}),
    "outlives visibility by the app's limit": Fault(
        {"W014", "W030"}, {"bill": PLAIN}, conf={"task_time_limit": 3601}
    ),
    "prefetch": Fault(
        {"W017"},
        {"bill": {"time_limit": 600}},
        conf={"worker_prefetch_multiplier": 4},
        reliable={"GIVE_BACK_SECONDS": 0},
    ),
    "results gone early": Fault({"W018"}, conf={"result_backend": "URL", "result_expires": 60}),
    "results for ever": Fault({"W019"}, conf={"result_backend": "URL", "result_expires": None}),
    "a pool that cannot stop": Fault(
        {"W021"}, {"bill": {"time_to_run_seconds": 30}}, conf={"worker_pool": "threads"}
    ),
    "too little grace by the setting": Fault(
        {"W022"},
        reliable={"GRACE_SECONDS": 30},
        conf={"worker_soft_shutdown_timeout": 30},
    ),
    "greenlets that nobody sweeps": Fault({"W027"}, conf={"worker_pool": "gevent"}),
    "a pool that is not supported": Fault({"E027"}, conf={"worker_pool": "eventlet"}),
    "a sweep by another name": Fault(
        {"W028"}, conf={"beat_schedule": {"a": {**SWEEP, "task": "celery_reliable.sweeper"}}}
    ),
    # As a task of a Django project has it.
    "rows that nobody looks after": Fault({"W031"}, {"bill": {"row_model": "shop.Order"}}),
    "plain tasks": Fault({"W030"}, {"bill": {"base": Task}}),
    "spawned children": Fault({"E011"}, conf={"worker_pool_start_method": "spawn"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_app_that_is_set_wrong(server: RedisServer, name: str) -> None:
    fault = FAULTS[name]
    conf = {key: server.url() if value == "URL" else value for key, value in fault.conf.items()}

    with shop(fault.url or server.url(), fault.tasks, fault.reliable, **conf) as app:
        assert found(app, grace_seconds=fault.grace_seconds) == fault.codes


def test_what_is_installed(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shop(server.url()) as app:
        with monkeypatch.context() as patch:
            patch.delattr(WorkController, "wait_for_soft_shutdown")
            assert found(app) == {"E010"}
        # The first metadata of this name on the path.
        metadata = tmp_path / "kombu-5.6.2.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Metadata-Version: 2.1\nName: kombu\nVersion: 5.6.2\n")
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(tmp_path))
            assert found(app) == {"E013"}
        assert found(app) == set()


def test_tasks_that_cannot_be_imported(server: RedisServer) -> None:
    with shop(server.url(), include=["shop.that.is.not.there"]) as app:
        assert found(app) == {"W004"}


def test_what_living_workers_tell(
    project: Project, start_worker: Start, server: RedisServer
) -> None:
    """A worker of another app, with a pool and times that do not fit, and one of an old release."""
    ours = {"bill": {"time_to_run_seconds": 300, "time_limit": 600}}
    theirs = project.with_settings(
        broker_url=server.url(),
        result_url=None,
        reliable={"WITNESS_SECONDS": 0},
        celery={
            "broker_transport_options": {"visibility_timeout": 30},
            "worker_soft_shutdown_timeout": 60,
        },
    )
    with shop(server.url(), ours) as app:
        assert found(app, grace_seconds=30) == {"W022"}
        assert found(app) == set()
        worker = start_worker(
            "other", project=theirs, pool="threads", options=("--prefetch-multiplier", "0")
        )
        assert found(app) == {"W015", "W016", "W021", "W025"}
        assert "W022" in found(app, grace_seconds=30)
        worker.stop()
        assert found(app) == set()

        workers = reliable_of(app).ledger.workers
        facts = {"app": "shop", "broker": reliable_of(app).project[1], "nodename": "old@here"}
        workers.register("old@here/1.0", lease_ms=60_000, client_id=7, facts=facts)
        assert found(app) == {"W023"}
        facts |= {"nodename": "two@here", "setup": {"versions": {"celery": "5.5.0"}}}
        workers.register("two@here/1.0", lease_ms=60_000, client_id=8, facts=facts)
        assert found(app) == {"W023", "E013"}


def test_a_node_of_a_cluster(start_redis: StartRedis) -> None:
    for _ in range(20):
        try:
            node = start_redis({**DURABLE, "cluster-enabled": "yes"})
            break
        except RuntimeError:
            # A port that is 10 000 higher has to be free as well.
            continue
    with shop(node.url()) as app:
        assert "E007" in found(app)
