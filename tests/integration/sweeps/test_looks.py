"""What a pass of the sweeper makes of records and of leases, without any worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.leases import WorkerLease
from celery_reliable.model import SweepReport
from celery_reliable.recovery.sweeper import Sweeper
from tests.integration.claiming import unacked_of
from tests.integration.conftest import Project


def look(sweeper: Sweeper) -> SweepReport:
    report = SweepReport()
    sweeper.overdue.look([], [], report)
    return report


def make_due(project: Project, task_ids: Sequence[str]) -> None:
    """Let somebody have to look now."""
    due = reliable_of(project.app).ledger.keys.due
    project.redis.client().zadd(due, {i: n for n, i in enumerate(task_ids, 1)}, xx=True)


def looks_in_seconds(project: Project, task_ids: Sequence[str]) -> list[float]:
    """In how many seconds somebody looks at each."""
    ledger = reliable_of(project.app).ledger
    now_ms = ledger.workers.time_ms()
    at_ms = {due.task_id: int(due.due_ms) for due in ledger.all_due(start=0, limit=1000)}
    return [(at_ms[task_id] - now_ms) / 1000 for task_id in task_ids]


@pytest.mark.parametrize("waiting", [1, 3, 30])
def test_what_is_gone_from_the_front_of_a_queue_is_sent_again(
    project: Project, sweeper: Sweeper, waiting: int
) -> None:
    client = project.redis.client()
    sent = []
    for number in range(waiting + 1):
        sent.append(project.send("work", 0).id)
        # Sent in different milliseconds, or nobody could tell which was first.
        client.hincrby(
            reliable_of(project.app).ledger.keys.record(sent[-1]), "published_ms", number - 1000
        )
    client.rpop("celery")
    make_due(project, sent)

    report = look(sweeper)

    assert (report.looked_at, report.resent) == (waiting + 1, 1)
    assert client.llen("celery") == waiting + 1
    newest: Any = client.lindex("celery", 0)
    assert sent[0] in newest.decode()


@pytest.mark.parametrize("state", ["queued", "parked"])
@pytest.mark.parametrize("holder", ["a stranger", "a worker", "a dead worker", "nobody"])
def test_what_somebody_may_run_is_not_sent_again(
    project: Project, sweeper: Sweeper, state: str, holder: str
) -> None:
    """A ledger that lost records may know neither the claim nor the worker, and a broker that lost
    its keys knows no list of unacked hashes.
    """
    client = project.redis.client()
    task_id = project.send("work", 0).id
    client.hset(reliable_of(project.app).ledger.keys.record(task_id), "state", state)
    unacked = unacked_of(sweeper.broker)
    if holder == "nobody":
        client.rpop("celery")
    else:
        if holder != "a worker":
            unacked.open(sweeper.config.namespace)
        assert len(unacked.take(["celery"], ["celery"], 1).deliveries) == 1
    alive, dead = holder == "a worker", holder == "a dead worker"
    lease = WorkerLease("one", dead, 0, "", "", "", facts={"unacked": unacked.name})
    make_due(project, [task_id])

    report = SweepReport()
    sweeper.overdue.look([lease] * alive, [lease] * dead, report)

    assert report.looked_at == 1
    is_held = holder in ("a stranger", "a worker")
    assert report.resent == (0 if is_held else 1)
    if is_held:
        # What was parked a moment ago may still be held: its worker removes the message soon.
        ledger, config = reliable_of(project.app).ledger, sweeper.config
        [due] = ledger.all_due(start=0, limit=1)
        left_ms = int(due.due_ms) - ledger.workers.time_ms()
        longest_ms = config.sweep_ms if state == "parked" else config.queued_ms
        assert longest_ms / 2 < left_ms <= longest_ms


def test_one_record_that_cannot_be_read_holds_up_no_other(
    project: Project, sweeper: Sweeper
) -> None:
    """It was written by a later version, say."""
    client = project.redis.client()
    task_ids = [project.send("work", 0).id for _ in range(3)]
    client.delete("celery")
    ledger = reliable_of(project.app).ledger
    client.hset(ledger.keys.record(task_ids[0]), "state", "unheard_of")
    make_due(project, task_ids)

    report = look(sweeper)

    assert (report.looked_at, report.resent, report.failed) == (3, 2, 1)
    assert client.hget(ledger.keys.record(task_ids[0]), "state") == b"unheard_of"
    assert looks_in_seconds(project, task_ids) == pytest.approx([60] * 3, abs=20)
