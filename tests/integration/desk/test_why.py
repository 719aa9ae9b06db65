"""Any task by its id: what an operator is told of it, of real tasks in real workers."""

from __future__ import annotations

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk, Filter, Kind, Wait
from tests.integration.conftest import ONE_EACH, SOON, Project
from tests.support.waiting import wait_for


@pytest.mark.keeps_fetched
def test_the_sentence_of_each_task(project: Project, desk: Desk) -> None:
    worker = project.start_worker("one", options=ONE_EACH)
    retried = project.send("flaky", 1, 3600)
    letter = project.send("failing", "no such customer")
    wait_for(lambda: desk.tasks.get(letter.id).why.kind is Wait.DEAD, 20, "a dead letter")
    wait_for(lambda: desk.tasks.get(retried.id).why.kind is Wait.RETRY, 20, "a retry")
    holder = project.begin("locked_retry_gate", "contract 7", "door")
    waiter = project.send("locked_retry_gate", "contract 7", "door")
    wait_for(lambda: desk.tasks.get(waiter.id).why.kind is Wait.OBJECT, 20, "one that waits")
    project.begin("gate", "other door")
    parked = project.send("work", 0, countdown=3600)
    behind = [project.send("work", 0) for _ in range(8)]

    running = desk.tasks.get(holder.id)
    assert (running.state, running.why.kind) == ("running", Wait.RUNNING)
    assert running.why.pid in {worker.pid, *worker.children()}
    assert running.why.worker.startswith("one@")
    assert running.why.sentence.startswith("Attempt 1 runs on one@")

    waits = desk.tasks.get(waiter.id).why
    assert waits.holder == holder.id
    assert waits.holder_since == running.why.since
    assert f"which {holder.id} has since" in waits.sentence
    assert desk.objects.get(waits.object_key).waiters == (waiter.id,)

    # A list does not look at who has it, and says no more than it knows.
    listed = {one.task_id: one for one in desk.tasks.page().items}[waiter.id]
    assert listed.why.kind is Wait.OBJECT
    assert waits.object_key in listed.why.sentence
    assert "free" not in listed.why.sentence

    until = desk.tasks.get(parked.id)
    assert (until.state, until.why.kind, until.why.queue) == ("parked", Wait.ETA, "celery")
    assert until.why.until is not None
    assert 3500 < until.why.until.timestamp() - desk.ledger.workers.time_ms() / 1000 <= 3600
    assert "until" in until.why.sentence

    views = [desk.tasks.get(one.id) for one in behind]
    assert {one.state for one in views} == {"queued"}
    fetched = [one for one in views if one.why.kind is Wait.FETCHED]
    queued = [one for one in views if one.why.kind is Wait.QUEUE]
    assert len(fetched) + len(queued) == 8
    # In the order of their publication, each with one more before it; the first may be behind the
    # one that tries again.
    depth = project.redis.client().llen("celery")
    assert [one.why.before for one in queued] == list(range(depth - len(queued), depth))
    assert {one.why.depth for one in queued} == {depth}
    assert all(one.why.worker.startswith("one@") for one in fetched)

    dead = desk.tasks.get(letter.id)
    assert (dead.state, dead.reason) == ("dead", "failed")
    assert "no such customer" in dead.why.sentence
    assert [one.what for one in dead.history] == ["published", "started", "failed"]

    unknown = desk.tasks.get("4711")
    assert (unknown.state, unknown.why.kind, unknown.is_known) == ("absent", Wait.ABSENT, False)
    assert "has ended" in unknown.why.sentence

    project.effects.open_gate("other door")
    project.effects.open_gate("door")
    waiter.get(timeout=30)
    wait_for(lambda: not desk.tasks.get(waiter.id).is_known, 10, "its end")


def test_what_workers_and_objects_tell(project: Project, desk: Desk) -> None:
    project.start_worker("one", options=ONE_EACH)
    holder = project.begin("locked_retry_gate", "contract 7", "door")
    for _ in range(5):
        project.send("gate", "door")
    unique = project.send("unique", "contract 8", countdown=3600)

    (one,) = wait_for(
        lambda: [view for view in desk.workers.all(unacked=True) if view.claims == 2],
        10,
        "it runs two",
    )
    assert (one.nodename.partition("@")[0], one.state, one.pool) == ("one", "alive", "prefork")
    assert one.witness
    assert one.runs[0].task_id == holder.id
    assert {run.name for run in one.runs} == {"project.locked_retry_gate", "project.gate"}
    assert all(run.since for run in one.runs)
    assert one.unacked is not None
    assert one.unacked >= 2

    listed = [view.holders[0] for view in desk.objects.page().items]
    having = {view.task_id: view for view in listed}
    assert having.keys() == {holder.id, unique.id}
    assert (having[holder.id].attempt, having[unique.id].attempt) == (1, 0)
    assert having[holder.id].worker == one.worker
    key = desk.objects.key_of("project.locked_retry_gate", "contract 7")
    found = desk.objects.get(key)
    assert (found.holders[0].task_id, found.holders[0].since) == (holder.id, one.runs[0].since)
    assert desk.objects.get(desk.objects.key_of("project.unique", "contract 9")).is_free
    project.effects.open_gate("door")
    holder.get(timeout=20)
    wait_for(lambda: desk.objects.get(key).is_free, 10, "the object is free")


def test_lists_by_filter(project: Project, desk: Desk) -> None:
    slow = [project.send("work", 0, queue="slow") for _ in range(3)]
    project.send("gate", "door")
    parked = project.send("work", 0, countdown=3600)

    def ids(wanted: Filter | None = None, kind: Kind | None = None) -> set[str]:
        found: set[str] = set()
        cursor = ""
        while True:
            page = desk.tasks.page(wanted or Filter(), state=kind, cursor=cursor, limit=2)
            assert len(page.items) <= 2
            found |= {one.task_id for one in page.items}
            cursor = page.cursor
            if page.is_last:
                return found

    assert ids(Filter(queue="slow")) == {one.id for one in slow}
    assert ids(Filter(task="project.w*")) == {one.id for one in [*slow, parked]}
    assert ids(kind=Kind.PARKED) == {parked.id}
    assert ids(Filter(text=parked.id[:8])) == {parked.id}
    assert ids(Filter(older_than_seconds=3600)) == set()
    assert len(ids()) == 5
    about = project.send("locked_gate", "contract 7", "door")
    project.send("locked_gate", "contract 8", "door")
    key = desk.objects.key_of("project.locked_gate", "contract 7")
    assert ids(Filter(object_id=key)) == {about.id}


def test_what_lost_its_message_waits_to_be_sent(project: Project, desk: Desk) -> None:
    result = project.send("work", 0)
    project.redis.client().delete("celery")

    found = desk.tasks.get(result.id)

    assert found.why.kind is Wait.RESEND
    assert "neither in the queue 'celery' nor with a worker" in found.why.sentence


def test_who_held_it_and_stopped_living_is_told(project: Project, desk: Desk) -> None:
    hasty = project.with_settings(reliable=SOON)
    worker = hasty.start_worker("one")
    result = hasty.send("gate", "door")
    project.effects.run_of(result.id)
    # Nobody else is there to declare it dead.
    worker.freeze()

    found = wait_for(
        lambda: (view := desk.tasks.get(result.id)) and "lapsed" in view.why.sentence and view,
        15,
        "a lapsed lease",
    )

    assert found.why.kind is Wait.RUNNING
    assert "a pass of the sweeper takes the attempt" in found.why.sentence
    worker.thaw()
    project.effects.open_gate("door")
    result.get(timeout=20)
    assert reliable_of(project.app).ledger.find(result.id) is None or project.effects.finished(
        result.id
    )
