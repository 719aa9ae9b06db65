"""A table of faults in a set-up, each made on real parts: the doctor finds it, and nothing else."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from celery import Celery, Task, _state

from celery_reliable import ConfigurationWarning, ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.doctor import examine
from tests.conftest import StartRedis
from tests.integration.conftest import Project, Start
from tests.support.acl import granted
from tests.support.redis_server import RedisServer, redis_binary

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
        findings = examine(app, **more).findings
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
    app = Celery("shop", broker=url, set_as_current=False)
    app.conf.reliable = reliable or {}
    app.conf.update(conf)
    # Tasks that other tests of this process share with all apps are not the shop's.
    own = {one for one in _state._on_app_finalizers if one.__module__ not in _SHARES_TASKS}
    with patch.object(_state, "_on_app_finalizers", own):
        for name, options in (tasks or {"bill": {}}).items():

            def body(order: int = 0) -> None: ...

            options = {"base": ReliableTask, "name": f"shop.{name}", **options}
            app.task(body, shared=False, **options)
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
        assert found(app) == set()


def test_a_server_that_is_set_wrong(server: RedisServer) -> None:
    client = server.client()
    wrong = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru", "appendonly": "no"}
    before = {name: client.config_get(name)[name] for name in wrong}
    for settings, codes in ((wrong, {"E005", "W008"}), (before, set())):
        for name, value in settings.items():
            client.config_set(name, value)
        with shop(server.url()) as app:
            assert found(app) == codes


def test_a_replica(server: RedisServer) -> None:
    client = server.client()
    client.replicaof("127.0.0.1", 1)
    try:
        with shop(server.url()) as app:
            # One that has lost its primary answers nothing else.
            assert found(app) == {"E008"}
    finally:
        client.replicaof("NO", "ONE")


@pytest.mark.parametrize(
    ("without", "codes", "words"),
    [
        ("+hdel", {"E009"}, "hdel"),
        # What is hidden is said to be, beside what follows from it.
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
    url = granted(server.client(), without=("+hdel", "+zcard"))

    with shop(url, task_default_queue="orders") as app:
        (finding, *_) = examine(app).findings
    rule = finding.hint.partition("needs: ")[2].split()
    assert {"~orders*", "+hdel", "+zcard", "resetkeys"} <= set(rule)
    server.client().execute_command("ACL", "SETUSER", "app", "reset", "on", ">password", *rule)

    with shop(url, task_default_queue="orders") as app:
        assert found(app) == set()


def test_a_server_that_cannot_be_reached_is_no_all_clear(server: RedisServer) -> None:
    away = f"redis://:secret@127.0.0.1:{server.port - 1}/0"

    with shop(away) as app:
        examined = examine(app)
    assert {one.code for one in examined.findings} == {"W004"}
    assert examined.is_ledger_away
    assert not any("secret" in one.message for one in examined.findings)


@pytest.mark.untraced("a script raises where a command is missing")
def test_a_server_without_a_command(start_redis: StartRedis, tmp_path: Path) -> None:
    binary = tmp_path / "server"
    binary.write_text(f'#!/bin/sh\nexec {redis_binary()} "$@" --rename-command ZREM ""\n')
    binary.chmod(0o755)
    server = start_redis(DURABLE, binary=binary)

    with shop(server.url()) as app:
        assert found(app) == {"E012"}


def test_a_namespace_of_a_later_release(server: RedisServer) -> None:
    with shop(server.url(), reliable={"NAMESPACE": "later"}) as app:
        server.client().hset(reliable_of(app).ledger.keys.meta, "format", 99)
        assert found(app) == {"E014"}


PLAIN: dict[str, Any] = {"base": Task, "acks_late": True}


def test_an_app_whose_tasks_and_times_do_not_fit(server: RedisServer) -> None:
    tasks: dict[str, dict[str, Any]] = {
        "options_without_the_base": {"base": Task, "object_id": "order"},
        "in_circles": {**PLAIN, "reject_on_worker_lost": True},
        "outlives_visibility": {**PLAIN, "time_limit": 3601},
        "cannot_be_stopped": {"time_to_run_seconds": 30},
        "has_a_row": {"row_model": "shop.Order"},
        "long": {"time_limit": 600},
    }
    conf = {
        "beat_schedule": {"a": {**SWEEP, "task": "shop.bill"}},
        "result_backend": server.url(),
        "result_expires": 60,
        "worker_pool": "gevent",
    }
    codes = {"W012", "W013", "W014", "W018", "W021", "W030", "W031"}

    with shop(server.url(), tasks, **conf) as app:
        assert found(app) == codes


@pytest.mark.parametrize(
    ("code", "reliable", "conf"),
    [
        ("E001", {"LEASE_SECOND": 3}, {}),
        ("E002", {}, {"broker_url": "amqp://127.0.0.1:1//"}),
        ("W002", {}, {"broker_url": "memory://"}),
        ("E027", {}, {"worker_pool": "eventlet"}),
        ("E011", {}, {"worker_pool_start_method": "spawn"}),
        ("W004", {}, {"include": ["shop.that.is.not.there"]}),
    ],
)
def test_an_app_that_cannot_work_so(
    server: RedisServer, code: str, reliable: dict[str, Any], conf: dict[str, Any]
) -> None:
    with shop(server.url(), None, reliable, **conf) as app:
        assert found(app) == {code}


def test_what_living_workers_tell(
    project: Project, start_worker: Start, server: RedisServer
) -> None:
    """A worker of another app, with a pool and times that do not fit, and one of an old release."""
    ours = {"bill": {"time_to_run_seconds": 300, "time_limit": 600}}
    theirs = project.with_settings(
        broker_url=server.url(),
        result_url=None,
        reliable={"WITNESS_SECONDS": 0},
    )
    with shop(server.url(), ours) as app:
        assert found(app) == set()
        worker = start_worker("other", project=theirs, pool="threads")
        assert found(app) == {"W016", "W021", "W025"}
        worker.stop()
        assert found(app) == set()

        workers = reliable_of(app).ledger.workers
        facts = {"app": "shop", "broker": reliable_of(app).project[1], "nodename": "old@here"}
        workers.register("old@here/1.0", lease_ms=60_000, client_id=7, facts=facts)
        assert found(app) == {"W023"}
        facts |= {"nodename": "two@here", "setup": {"versions": {"celery": "5.5.0"}}}
        workers.register("two@here/1.0", lease_ms=60_000, client_id=8, facts=facts)
        assert found(app) == {"W023", "E013"}
