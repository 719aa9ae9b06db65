"""What is not well, and was taken for it: a stock of letters, a forgotten order, nobody there."""

from __future__ import annotations

import json

from celery_reliable.findings import Finding, Limits
from celery_reliable.model import Reason
from celery_reliable.operations import Desk, check
from celery_reliable.orders import OrderKind
from celery_reliable.recovery import Sweeper
from tests.integration.commands import Run
from tests.integration.conftest import ONE_EACH, SOON, Project
from tests.integration.desk.faults import found
from tests.integration.letters import put
from tests.support.waiting import wait_for


def bury(project: Project, count: int, reason: Reason, task: str) -> None:
    for number in range(count):
        put(project, f"{task}-{number}", reason=reason, name=task)


def named(desk: Desk, name: str, limits: Limits | None = None) -> Finding | None:
    """A finding by its name."""
    findings = {one.name: one for one in check(desk.status(), limits)}
    return findings.get(name)


def finding(desk: Desk, name: str, limits: Limits | None = None) -> Finding:
    wanted = named(desk, name, limits)
    assert wanted is not None, name
    return wanted


def test_an_error_is_found_behind_any_number_of_newer_letters(project: Project, desk: Desk) -> None:
    bury(project, 3, Reason.LOST, "images.resize")
    bury(project, 700, Reason.UNPROCESSABLE, "legacy.cleanup")

    assert "images.resize 3" in finding(desk, "poison").message
    assert "legacy.cleanup 700" in finding(desk, "unprocessable").message
    # Once it was mended, and is no news any more.
    assert named(desk, "poison") is not None
    desk.ledger.discard("images.resize-0")
    assert "images.resize 2" in finding(desk, "poison").message


def test_many_failures_are_found(project: Project, desk: Desk) -> None:
    bury(project, 99, Reason.FAILED, "mail.send")
    assert named(desk, "many_failures") is None
    bury(project, 100, Reason.FAILED, "mail.other")

    few = finding(desk, "many_failures")
    assert (few.severity, "199 tasks" in few.message) == ("warning", True)
    assert "mail.other 100, mail.send 99" in few.message
    assert finding(desk, "many_failures", Limits(failures=19)).severity == "error"


def test_a_forgotten_order_is_found(project: Project, desk: Desk) -> None:
    for _ in range(25):
        project.send("work", 0)
    given = [
        desk.orders.give(OrderKind.PAUSE, "celery", by="ann", why="prices", later=True),
        desk.orders.give(OrderKind.PAUSE, "mail", by="ann", for_seconds=7200, later=True),
    ]
    assert named(desk, "order_without_end") is None
    client, key = project.redis.client(), desk.ledger.keys.orders
    for one in given:
        # As if it had been given half an hour ago.
        told = json.loads(client.hget(key, one.id))
        told["given_ms"] -= 1_800_000
        client.hset(key, one.id, json.dumps(told))

    forgotten = finding(desk, "order_without_end")

    assert "celery" in forgotten.message
    assert "by ann" in forgotten.message
    assert "25 tasks" in forgotten.message
    assert given[0].id in forgotten.hint
    assert "mail" not in forgotten.message
    desk.orders.resume([given[0].id], by="ann")
    assert named(desk, "order_without_end") is None


def test_tasks_that_wait_for_nobody_are_found(
    project: Project, desk: Desk, sweeper: Sweeper
) -> None:
    direct = project.with_settings(celery={**project.settings.celery, "worker_direct": True})
    direct.send("work", 0, only_workers=["gpu-9*"])
    sweeper.run_if_due()
    assert named(desk, "named_worker_missing") is None

    wait_for(
        lambda: named(desk, "named_worker_missing", Limits(oldest_seconds=0.5)), 20, "it is late"
    )

    assert "gpu-9*" in finding(desk, "named_worker_missing", Limits(oldest_seconds=0.5)).message


def test_a_long_run_is_found(shared: Project, desk: Desk) -> None:
    result = shared.begin("gate", "door")
    assert named(desk, "long_run") is None

    wait_for(lambda: named(desk, "long_run", Limits(run_seconds=0.5)), 20, "it runs for long")

    assert result.id in finding(desk, "long_run", Limits(run_seconds=0.5)).message
    shared.effects.open_gate("door")


def test_nobody_is_there_which_is_no_health(project: Project, desk: Desk, run: Run) -> None:
    told = run("status", "--check")
    # A probe of a fleet that is scaled to nothing does not fail, and nobody calls it well.
    assert (told.code, "No worker is alive" in told.out) == (0, True)
    assert "Nothing is wrong" not in told.out
    assert finding(desk, "no_worker").severity == "info"

    project.send("work", 0, countdown=3600)

    assert finding(desk, "no_worker").severity == "error"
    assert run("status", "--check").code == 1


def test_a_fleet_that_is_drained_is_not_told_to_start_workers(project: Project) -> None:
    hasty = project.with_settings(reliable=SOON)
    hasty.start_worker("one", options=ONE_EACH)
    limits = Limits(oldest_seconds=1)
    with Desk(hasty.app) as desk:
        desk.orders.give(OrderKind.DRAIN, "one@*", by="ann")
        wait_for(lambda: desk.orders.all()[0].heard, 20, "the worker obeys")
        for _ in range(3):
            hasty.send("work", 0)

        wait_for(lambda: named(desk, "queue_old", limits), 20, "they wait")

        old = finding(desk, "queue_old", limits)
        assert "start more workers" not in old.hint
        assert "drained" in old.hint
        assert "one@" in old.hint
        assert "worker_takes_nothing" not in found(desk, oldest_seconds=1)
