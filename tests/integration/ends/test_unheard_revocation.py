"""Revocations that no worker hears, or only those that do not run the task."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import celery
import pytest
from celery.app.control import Control
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from celery_reliable.app import reliable_of
from celery_reliable.compat.app import give_part
from celery_reliable.recovery import RecordingControl
from celery_reliable.task import CONTROL
from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.support.promises import promise
from tests.support.waiting import wait_for

# Celery's own way to store a result.
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


def record(project: Project, task_id: str) -> Any:
    return reliable_of(project.app).ledger.find(task_id)


@promise("revocations")
def test_what_waits_is_gone_though_no_worker_hears_it(project: Project) -> None:
    revoke = project.app.control.revoke
    ways: tuple[Callable[[AsyncResult[Any]], object], ...] = (
        lambda result: revoke(result.id),
        lambda result: result.revoke(),
        lambda result: revoke([result.id, "nobody knows"]),
    )
    for way, countdown in product(ways, (0, 3600)):
        result = project.send("work", 0, countdown=countdown)
        way(result)
        assert record(project, result.id) is None
        with pytest.raises(TaskRevokedError):
            result.get(timeout=5)

    project.start_worker("one")

    later = project.send("work", 0)
    assert later.get(timeout=10) == "worked"
    assert [run.task_id for run in project.effects.runs()] == [later.id]


@promise("revocations")
def test_only_some_workers_are_told(project: Project) -> None:
    result = project.send("work", 0)
    project.app.control.revoke(result.id, destination=["one@host"])
    assert record(project, result.id) is not None


@promise("revocations")
def test_what_runs_on_a_dead_worker_does_not_come_back(project: Project) -> None:
    one = project.start_worker("one", options=("-Q", "celery"), concurrency=1)
    result = project.send("gate", "gate")
    project.effects.run_of(result.id)
    two = project.start_worker("two", options=("-Q", "others"), concurrency=1)
    one.kill_group()
    two.kill_group()
    result.revoke()
    project.start_worker("three", concurrency=1)

    wait_for(lambda: record(project, result.id) is None, 30, "it has ended")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=5)
    assert len(project.effects.runs(result.id)) == 1
    project.effects.open_gate("gate")
    assert project.send("work", 0).get(timeout=10) == "worked"
    assert len(project.effects.runs(result.id)) == 1
    assert reliable_of(project.app).ledger.count_dead() == 0


@promise("revocations")
@pytest.mark.skipif(
    celery.VERSION < (5, 7), reason="there Celery itself stores REVOKED for what runs"
)
def test_what_runs_and_is_not_terminated_has_its_outcome(project: Project) -> None:
    project.start_worker("one")
    result = project.send("gate", "gate")
    project.effects.run_of(result.id)
    result.revoke()
    wait_for(lambda: record(project, result.id).is_revoked, 5, "it is noted")
    project.effects.open_gate("gate")
    assert result.get(timeout=10) == "gate"
    wait_for(lambda: record(project, result.id) is None, 5, "it is settled")


class OwnControl(Control):
    """A control class of the application's own."""


def test_an_app_keeps_its_own_control_class(project: Project) -> None:
    app = project.app
    app.__dict__.pop("control", None)
    app.control_cls = OwnControl
    for _ in range(2):
        give_part(app, "control", CONTROL)
    assert isinstance(app.control, OwnControl)
    assert isinstance(app.control, RecordingControl)


def test_a_revocation_is_published_though_the_ledger_is_away(
    project: Project, start_redis: StartRedis
) -> None:
    away = start_redis()
    apart = project.with_settings(reliable={"REDIS_URL": away.url()})
    apart.start_worker("one")
    away.freeze()
    try:
        (answer,) = apart.app.control.revoke("some", reply=True, timeout=8, limit=1)
    finally:
        away.thaw()
    assert answer
