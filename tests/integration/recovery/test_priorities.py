"""What comes back keeps its priority; within one, what was lost goes first once."""

from __future__ import annotations

from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.model import Reason
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.recovery.sweeper import Sweeper
from tests.integration.conftest import SOON, Project
from tests.integration.figures import DUE, ids_in, record_of, wait_until_settled
from tests.support.waiting import wait_for

STEP = "celery\x06\x16"
LOW = STEP + "6"


@pytest.fixture
def project(project: Project) -> Project:
    """The project that looks soon after what nobody has begun."""
    return project.with_settings(reliable=SOON)


def send(project: Project, name: str, task_id: str, *args: Any, **options: Any) -> Any:
    """Publish a task of low priority."""
    return project.send(name, *args, task_id=task_id, priority=6, **options)


def begun(project: Project, count: int) -> list[str]:
    """Wait until so many attempts have begun; return the tasks' ids in their order."""
    wait_for(lambda: len(project.effects.runs()) >= count, 30, f"{count} attempts")
    return [run.task_id for run in project.effects.runs()]


def test_what_is_sent_from_its_record_keeps_its_priority(
    project: Project, sweeper: Sweeper
) -> None:
    """At its ETA, and by a replay."""
    client = project.redis.client()
    send(project, "work", "waiting", 0, countdown=3600)
    client.zadd(DUE, {"waiting": 1})

    sweeper.run_if_due()

    assert ids_in(project.redis, LOW) == ["waiting"]
    record = record_of(project.redis, "waiting")
    told = {"exception": "a test's", "traceback": "", "message": record["message"]}
    name, epoch = record["name"], record["epoch"]
    reliable_of(project.app).ledger.bury_message(
        "waiting", Reason.REJECTED, **told, name=name, epoch=epoch
    )
    client.delete(LOW)

    assert DeadLetters(project.app).replay("waiting") == ""

    assert ids_in(project.redis, LOW) == ["waiting"]
    assert not client.exists("celery")


@pytest.mark.full
def test_what_comes_back_keeps_its_priority_and_what_was_lost_goes_first_once(
    project: Project,
) -> None:
    worker = project.start_worker("one", concurrency=1)
    send(project, "gate", "lost", "lost")
    begun(project, 1)
    send(project, "gate", "first", "first")
    send(project, "gate", "second", "second")
    # A loss of its process: in front of what waits; another one: behind it.
    for number, following in ((1, "lost"), (2, "first")):
        worker.kill_child(project.effects.run_of("lost", number).pid)
        assert begun(project, number + 1)[number] == following
    wait_for(
        lambda: ids_in(project.redis, LOW) == ["second", "lost"], 10, "it goes behind the others"
    )
    # One that is more urgent comes before all of them.
    project.send("work", 0, task_id="urgent", priority=0)
    # The worker dies: what it ran goes first, at its priority.
    worker.kill_group()
    # This one consumes another queue, and sweeps.
    project.start_worker("sweeper", concurrency=1, options=("-Q", "no"))
    wait_for(
        lambda: ids_in(project.redis, LOW) == ["first", "second", "lost"], 20, "it is given back"
    )
    again = project.start_worker("two", concurrency=1)
    assert begun(project, 5)[3:5] == ["urgent", "first"]
    for gate in ("first", "second", "lost"):
        project.effects.open_gate(gate)
    wait_until_settled(project.redis, 30)

    # From its record, after a retry.
    client = project.redis.client()
    send(project, "flaky", "retried", 1, 90.0)
    wait_for(lambda: record_of(project.redis, "retried").get("state") == "waiting", 20, "a retry")
    again.end()
    client.zadd(DUE, {"retried": 1})
    wait_for(lambda: "retried" in ids_in(project.redis, LOW), 20, "the retry is sent")
    assert not any(client.llen(key) for key in ("celery", STEP + "3", STEP + "9"))
