"""Revocations are Celery's, and outlive workers.

What waits or is parked is gone for good, with or without workers; what runs ends as it would.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import celery
import pytest
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from tests.integration.conftest import Project
from tests.integration.figures import record_of
from tests.promises.conftest import Letters
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


@promise("revocations")
def test_what_waits_is_gone_though_no_worker_hears_it_and_what_runs_ends(project: Project) -> None:
    """In a queue or parked it never runs, and its result is REVOKED.  What runs is not stopped."""
    revoke = project.app.control.revoke
    ways: tuple[Callable[[AsyncResult[Any]], object], ...] = (
        lambda result: revoke(result.id),
        lambda result: result.revoke(),
        lambda result: revoke([result.id, "nobody knows"]),
    )
    for way, countdown in product(ways, (0, 3600)):
        result = project.send("work", 0, countdown=countdown)
        way(result)
        assert not record_of(project.redis, result.id)
        with pytest.raises(TaskRevokedError):
            result.get(timeout=5)

    project.start_worker("one")

    later = project.send("work", 0)
    assert later.get(timeout=10) == "worked"
    assert [run.task_id for run in project.effects.runs()] == [later.id]
    running = project.begin("gate", "gate")
    running.revoke()
    project.effects.open_gate("gate")
    # Before Celery 5.7 Celery itself stores REVOKED for what runs.
    assert celery.VERSION < (5, 7) or running.get(timeout=10) == "gate"
    wait_for(lambda: not record_of(project.redis, running.id), 5, "it is settled")
    # A call that names a destination is for these workers alone.
    far = project.send("work", 0, countdown=3600)
    project.app.control.revoke(far.id, destination=["one@host"])
    assert record_of(project.redis, far.id)


@promise("revocations")
def test_what_runs_on_a_dead_worker_does_not_come_back(project: Project, letters: Letters) -> None:
    """It was revoked while no worker lived."""
    one = project.start_worker("one", concurrency=1)
    result = project.begin("gate", "gate")
    one.kill_group()
    result.revoke()
    project.start_worker("two", concurrency=1)

    wait_for(lambda: not record_of(project.redis, result.id), 30, "it has ended")
    with pytest.raises(TaskRevokedError):
        result.get(timeout=5)
    assert len(project.effects.runs(result.id)) == 1
    project.effects.open_gate("gate")
    assert project.send("work", 0).get(timeout=10) == "worked"
    assert len(project.effects.runs(result.id)) == 1
    assert not letters()


@promise("revocations")
def test_a_revocation_is_published_though_the_ledger_is_away(
    apart: Project, ledger_server: RedisServer
) -> None:
    """Workers hear it, as in Celery."""
    apart.start_worker("one")
    ledger_server.freeze()
    try:
        (answer,) = apart.app.control.revoke("some", reply=True, timeout=8, limit=1)
    finally:
        ledger_server.thaw()
    assert answer
