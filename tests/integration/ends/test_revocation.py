"""Tasks that are called off: none runs again, whoever remembers it, and none keeps its object."""

from __future__ import annotations

from typing import Any

import pytest
from celery.app.control import Control

from celery_reliable.compat.app import give_part
from celery_reliable.recovery import RecordingControl
from celery_reliable.task import CONTROL
from tests.integration.conftest import Project
from tests.integration.ends.ways import (
    GONE,
    End,
    assert_none_comes_back,
    ticking_run_of,
    wait_for_ends,
    wait_until_only_ends_are_left,
)
from tests.integration.figures import LOCKS, RECORD
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def waiting(project: Project, **options: Any) -> dict[str, Any]:
    """Send tasks that wait in every place where one can; `options` are those of all of them.

    To a worker of concurrency 1, which the first runs until the gate "busy" is opened.
    """
    send = project.send
    found = {"retried": send("flaky", 1, 12, **options)}
    wait_for(lambda: found["retried"].state == "RETRY", 15, "a retry")
    found["running"] = project.begin("gate", "busy", **options)
    found["with an ETA"] = send("work", 0.01, countdown=12, **options)
    found["in the queue"] = send("work", 0.01, **options)
    return found


def revoked(results: dict[str, Any]) -> dict[str, End]:
    """The ends of tasks that were called off; some had run by then."""
    have_run = ("running", "retried")
    return {r.id: End(GONE, "REVOKED", int(place in have_run)) for place, r in results.items()}


@promise("revocations")
def test_what_is_revoked_never_runs_though_nobody_remembers_it(ending: Project) -> None:
    worker = ending.start_worker("one", concurrency=1)
    results = waiting(ending)

    ending.app.control.revoke([r.id for r in results.values()], terminate=True)

    ends = revoked(results)
    wait_for_ends(ending, ends)
    # Its memory dies with the worker.
    ending.effects.open_gate("busy")
    assert_none_comes_back(ending, worker, ends)


@promise("revocations")
def test_what_is_revoked_by_a_stamp_never_runs(ending: Project) -> None:
    worker = ending.start_worker("one", concurrency=1)
    results = waiting(ending, stamped_headers=["customer"], customer="one")

    # Of what is parked a worker sees the stamp at its moment.
    ending.app.control.revoke_by_stamped_headers(
        {"customer": "one"}, reply=True, limit=1, timeout=5
    )
    # Only now, as what waits behind it would run.
    ending.app.control.revoke(results.pop("running").id, terminate=True)

    ends = revoked(results)
    wait_for_ends(ending, ends)
    wait_until_only_ends_are_left(ending.redis, 0)
    assert_none_comes_back(ending, worker, ends)


def test_what_has_expired_never_runs_wherever_it_waited(ending: Project) -> None:
    worker = ending.start_worker("one", concurrency=1)
    results = waiting(ending, expires=8)
    # Of the last one too.
    sent_at = ending.effects.now()
    wait_for(lambda: ending.effects.now() - sent_at > 8.5, 15, "their expiry")

    # What ran in time is lost, and too late for another run.
    worker.kill_child(ending.effects.run_of(results["running"].id).pid)

    ends = revoked(results)
    wait_for_ends(ending, ends)
    wait_until_only_ends_are_left(ending.redis, 0)
    assert_none_comes_back(ending, worker, ends)


@promise("revocations")
@pytest.mark.parametrize("how", ["is retried far away", "is lost"])
def test_what_is_revoked_while_it_runs_does_not_run_again(ending: Project, how: str) -> None:
    worker = ending.start_worker("one", concurrency=1)
    result = ending.send("follow", ["retry:gate", "finish"], 600)
    run = ending.effects.run_of(result.id)
    # What is lost goes behind this one.
    ending.send("gate", "later")
    ending.app.control.revoke(result.id, reply=True, limit=1, timeout=5)

    if how == "is lost":
        worker.kill_child(run.pid)
    ending.effects.open_gate("gate")

    ends = {result.id: End(GONE, "REVOKED")}
    wait_for_ends(ending, ends, 15)
    ending.effects.open_gate("later")
    assert_none_comes_back(ending, worker, ends)


@promise("one-object")
def test_a_terminated_task_keeps_its_object_until_it_has_really_ended(shared: Project) -> None:
    first = shared.send("stubborn_object", "object", 4.0)
    ticking_run_of(shared.effects, first.id)
    first.revoke(terminate=True)
    wait_for(lambda: first.state == "REVOKED", 10, "REVOKED")
    second = shared.send("stubborn_object", "object", 0.01)
    assert second.get(timeout=30) == "object"
    assert not shared.effects.overlaps("object")
    assert len(shared.effects.runs(first.id)) == 1
    client = shared.redis.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "every record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock is freed")
    wait_for(lambda: not client.keys("unacked:*"), 10, "every message acknowledged")


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
