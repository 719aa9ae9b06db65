"""What real workers tell: what is off the straight way is noted; what begins and ends, counted."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from celery_reliable.operations import Desk, Throughputs, Wait
from tests.integration.commands import Run
from tests.integration.conftest import SOON, Project
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_each_is_noted_once_and_what_goes_well_is_only_counted(
    project: Project, desk: Desk, run: Run
) -> None:
    project = project.with_settings(reliable={**SOON, "MAX_LOSSES": 1})
    worker = project.start_worker("one")
    for _ in range(5):
        project.send("work", 0).get(timeout=20)
    project.send("flaky", 2, 0).get(timeout=30)
    assert {one.kind for one in desk.happenings.page()} == {"worker_registered"}

    # Its process dies, and it runs again; another task fails; another worker dies.
    killed = project.send("gate", "door")
    worker.kill_child(project.effects.run_of(killed.id).pid)
    project.start_worker("two").kill_group()
    project.effects.run_of(killed.id, 2)
    project.effects.open_gate("door")
    killed.get(timeout=20)
    failed = project.send("failing", "argument-7")
    wait_for(lambda: desk.ledger.dead_letter(failed.id), 20, "a dead letter")
    desk.letters.discard(failed.id, by="somebody")
    wait_for(
        lambda: any(one.kind == "worker_declared_dead" for one in desk.happenings.page()),
        30,
        "a death is noticed",
    )
    worker.stop()

    found = desk.happenings.page()
    about = {
        (one.kind, one.task_id or str(one.about.get("worker")).partition("@")[0])
        for one in found
        if one.kind != "pass_finished"
    }
    assert about == {
        ("worker_registered", "one"),
        ("task_lost", killed.id),
        ("worker_registered", "two"),
        ("task_recovered", killed.id),
        ("task_buried", failed.id),
        ("dead_letter_discarded", failed.id),
        ("worker_declared_dead", "two"),
        ("worker_left", "one"),
    }
    (lost,) = (one for one in found if one.kind == "task_lost")
    assert lost.name == "project.gate"
    assert lost.sentence.startswith("attempt 1, losses 1, cause child_lost, worker one@")
    assert "argument-7" not in str(found)
    assert [one.at for one in found] == sorted(one.at for one in found if one.at)

    # Its last beat told what it had not told before.
    counted: Counter[str] = Counter()
    for minute in Throughputs.of(desk.ledger).counted:
        counted.update(minute)
    assert counted == {"processed": 10, "failed": 1, "lost": 1}
    in_10_minutes = desk.status().throughput[0]
    (processed,) = re.findall(r"^10 +(\S+) .*$", run("status").out, re.MULTILINE)
    assert in_10_minutes.lost > 0
    assert 1 <= float(processed) <= in_10_minutes.processed <= 10 / 9


@pytest.mark.parametrize("pool", ["prefork", "celery_reliable.pool:TaskPool"])
def test_a_delivery_that_was_not_run_is_not_processed(
    project: Project, desk: Desk, pool: str
) -> None:
    """One that waits for its object, and one of a copy of its message."""
    project = project.with_settings(reliable=SOON, celery={"worker_pool": pool})
    worker = project.start_worker("one", concurrency=2)
    first = project.begin("in_line_gate", "row", "door")
    second = project.send("in_line_gate", "row", "door")
    wait_for(lambda: desk.tasks.get(second.id).why.kind is Wait.OBJECT, 20, "it waits")
    project.effects.open_gate("door")
    for one in (first, second):
        one.get(timeout=30)
    worker.stop()

    counted: Counter[str] = Counter()
    for minute in Throughputs.of(desk.ledger).counted:
        counted.update(minute)
    assert counted == {"processed": 2}
