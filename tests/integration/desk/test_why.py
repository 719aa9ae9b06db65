"""Any task by its id: what an operator is told of it, alive or ended, also by other brokers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from celery_reliable.operations import Desk, Filter, Kind, Wait, check
from tests.integration.commands import invoke
from tests.integration.conftest import Project
from tests.support.acl import granted
from tests.support.rabbit_server import RabbitServer
from tests.support.waiting import wait_for


def test_the_sentence_of_each_task(project: Project, desk: Desk) -> None:
    worker = project.start_worker("one")
    retried = project.send("flaky", 1, 3600)
    letter = project.send("failing", "no such customer")
    wait_for(lambda: desk.tasks.get(letter.id).why.kind is Wait.DEAD, 20, "a dead letter")
    wait_for(lambda: desk.tasks.get(retried.id).why.kind is Wait.RETRY, 20, "a retry")
    holder = project.begin("in_line_gate", "contract 7", "door")
    waiter = project.send("in_line_gate", "contract 7", "door")
    wait_for(lambda: desk.tasks.get(waiter.id).why.kind is Wait.OBJECT, 20, "one that waits")
    project.begin("gate", "other door")
    parked = project.send("work", 0, countdown=3600)
    unique = project.send("unique", "contract 8", countdown=3600)
    behind = [project.send("work", 0) for _ in range(8)]

    running = desk.tasks.get(holder.id)
    assert (running.state, running.why.kind) == ("running", Wait.RUNNING)
    assert running.why.pid in {worker.pid, *worker.children()}
    assert running.why.worker.startswith("one@")
    assert running.why.sentence.startswith("Attempt 1 runs on one@")

    waits = desk.tasks.get(waiter.id).why
    assert waits.holder == holder.id
    assert waits.holder_since == running.why.since
    assert f"{holder.id} has it since" in waits.sentence
    assert desk.objects.get(waits.object_key).waiters == (waiter.id,)

    # A list does not look at who has it, and says no more than it knows.
    listed = {one.task_id: one for one in desk.tasks.page().items}[waiter.id]
    assert listed.why.kind is Wait.OBJECT
    assert holder.id not in listed.why.sentence

    until = desk.tasks.get(parked.id)
    assert (until.state, until.why.kind, until.why.queue) == ("waiting", Wait.ETA, "celery")
    assert until.why.until is not None
    assert 3500 < until.why.until.timestamp() - desk.ledger.workers.time_ms() / 1000 <= 3600
    assert "until" in until.why.sentence

    views = [desk.tasks.get(one.id) for one in behind]
    assert {one.state for one in views} == {"queued"}
    # In the order of their publication, each with one more before it.
    assert [(one.why.kind, one.why.before, one.why.depth) for one in views] == [
        (Wait.QUEUE, number, 8) for number in range(8)
    ]

    dead = desk.tasks.get(letter.id)
    assert (dead.state, dead.reason) == ("dead", "failed")
    assert "no such customer" in dead.why.sentence
    assert [one.what for one in dead.history] == ["published", "started", "failed"]

    (one,) = desk.workers.all()
    assert (one.nodename.partition("@")[0], one.state, one.pool) == ("one", "alive", "prefork")
    assert one.witness
    assert (one.claims, one.runs[0].task_id) == (2, holder.id)
    assert {run.name for run in one.runs} == {"project.in_line_gate", "project.gate"}
    assert all(run.since for run in one.runs)

    views = {one.holders[0].task_id: one for one in desk.objects.page().items}
    assert views.keys() == {holder.id, unique.id}
    (has,), (will_have,) = views[holder.id].holders, views[unique.id].holders
    assert (has.attempt, will_have.attempt) == (1, 0)
    assert (has.worker, has.since) == (one.worker, one.runs[0].since)
    key = views[holder.id].object_key
    assert key == desk.objects.key_of("project.in_line_gate", "contract 7")
    assert desk.objects.get(key).holders == (has,)
    assert not desk.objects.get(desk.objects.key_of("project.unique", "contract 9")).holders

    unknown = desk.tasks.get("4711")
    assert (unknown.state, unknown.why.kind, unknown.is_known) == ("absent", Wait.ABSENT, False)
    assert "has ended" in unknown.why.sentence

    project.effects.open_gate("other door")
    project.effects.open_gate("door")
    waiter.get(timeout=30)
    wait_for(lambda: not desk.tasks.get(waiter.id).is_known, 10, "its end")
    wait_for(lambda: not desk.objects.get(key).holders, 10, "the object is free")


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
    assert ids(kind=Kind.WAITING) == {parked.id}
    assert ids(Filter(older_than_seconds=3600)) == set()
    assert len(ids()) == 5


def test_what_lost_its_message_waits_to_be_sent(project: Project, desk: Desk) -> None:
    result = project.send("work", 0)
    project.redis.client().delete("celery")

    found = desk.tasks.get(result.id)

    assert found.why.kind is Wait.RESEND
    assert "neither in the queue 'celery' nor with a worker" in found.why.sentence


def test_a_task_whose_process_was_killed_can_be_asked_about_when_it_has_ended(
    project: Project, desk: Desk
) -> None:
    worker = project.start_worker("one")
    result = project.send("gate", "door")
    killed = project.effects.run_of(result.id).pid
    assert killed in worker.children()
    worker.kill_child(killed)
    second = project.effects.run_of(result.id, 2).pid
    project.effects.open_gate("door")
    result.get(timeout=20)

    view = wait_for(
        lambda: (found := desk.tasks.get(result.id)).state == "ended" and found, 10, "its end"
    )

    assert (view.name, view.outcome, view.attempts, view.losses) == (
        "project.gate",
        "SUCCESS",
        2,
        1,
    )
    # A worker's main process may claim for one of its pool's.
    assert view.why.kind is Wait.ENDED
    assert view.why.pid in (worker.pid, second)
    assert view.why.worker.startswith("one@")
    assert "ended as SUCCESS" in view.why.sentence
    whats = [one.what for one in view.history]
    assert whats == ["published", "started", "lost", "started", "ended"]
    _, begun, entry, *_ = view.history
    assert (begun.attempt, entry.attempt) == (1, 1)
    assert entry.pid in (worker.pid, killed)
    assert entry.worker.startswith("one@")
    assert "child_lost" in entry.cause
    assert "9" in entry.cause
    assert view.published_at <= begun.at <= entry.at <= view.why.since


def test_a_retry_a_burial_and_a_discarded_letter(shared: Project, desk: Desk) -> None:
    retried = shared.send("flaky", 2, 0)
    retried.get(timeout=30)
    failed = shared.send("failing", "no such customer")
    wait_for(lambda: desk.tasks.get(failed.id).state == "dead", 20, "a dead letter")
    desk.letters.discard(failed.id)

    found = wait_for(
        lambda: (one := desk.tasks.get(retried.id)).state == "ended" and one, 10, "its end"
    )
    assert (found.outcome, found.attempts, found.losses) == ("SUCCESS", 3, 0)
    # Of two retries the last is told, and that there were two.
    whats = [one.what for one in found.history]
    assert whats == ["published", "started", "retried", "started", "ended"]
    assert found.history[2].cause == "2 times"
    assert found.publisher == ""
    gone = desk.tasks.get(failed.id)
    assert (gone.state, gone.outcome) == ("ended", "DISCARDED")
    assert "no such customer" in gone.history[-2].cause


def test_what_was_refused_is_an_event_though_no_record_was_changed(
    shared: Project, desk: Desk
) -> None:
    held = shared.begin("locked_gate", "object", "door")
    skipped = shared.send("locked_gate", "object", "door")
    (event,) = wait_for(lambda: desk.happenings.page(task=skipped.id), 20, "its refusal")

    assert (event.kind, event.about["holder"]) == ("task_skipped", held.id)
    running = desk.tasks.get(held.id)
    assert running.state == "running"
    assert [one.what for one in running.history] == ["published", "started"]
    assert f"{os.getpid()}@" in running.publisher
    shown = invoke(shared.app, "events", "--task", skipped.id)
    assert f"holder {held.id}" in " ".join(shown.output.split())
    shared.effects.open_gate("door")
    held.get(timeout=20)


def test_as_many_are_kept_as_the_settings_say_and_a_sample_of_the_others(project: Project) -> None:
    project = project.with_settings(reliable={"KEEP_ENDED": 2, "KEEP_ENDED_ONE_IN": 1})
    project.start_worker("one")
    with Desk(project.app) as desk:
        ids = []
        for name in ("project.work", "project.work", "project.undeadly"):
            result = project.app.send_task(name, (0,) if name == "project.work" else ())
            wait_for(
                lambda i=result.id: desk.tasks.get(i).state == "ended", 20, f"{name} has ended"
            )
            ids.append(result.id)
        kept = [desk.ledger.ended_task(one) for one in ids]

    assert [one and one.outcome for one in kept] == [None, "SUCCESS", "FAILURE"]


@pytest.mark.full
def test_a_rabbit_is_asked_by_passive_declaration(
    project: Project, start_rabbit: Callable[..., RabbitServer]
) -> None:
    on_rabbit = project.with_settings(
        broker_url=start_rabbit().url(),
        reliable={"REDIS_URL": project.redis.url(), "LEASE_SECONDS": 4, "SWEEP_SECONDS": 1},
    )
    on_rabbit.start_worker("one")
    running = [on_rabbit.send("gate", "door") for _ in range(2)]
    for one in running:
        project.effects.run_of(one.id)
    behind = [on_rabbit.send("work", 0) for _ in range(6)]
    forgotten = on_rabbit.send("work", 0, queue="forgotten")
    with Desk(on_rabbit.app) as desk:

        def queues() -> dict[str, tuple[int | None, int | None]]:
            return {one.name: (one.depth, one.consumers) for one in desk.queues.all()}

        wait_for(lambda: queues().get("forgotten") == (1, 0), 20, "one message, and no consumer")
        # Its worker consumes nothing while all its processes are busy for long.
        wait_for(lambda: queues()["celery"] == (6, 0), 30, "all wait in the queue")
        waits = desk.tasks.get(behind[-1].id).why
        assert (waits.kind, waits.queue, waits.depth) == (Wait.QUEUE, "celery", 6)
        assert desk.tasks.get(running[0].id).why.kind is Wait.RUNNING
        (found,) = check(desk.status())
        assert found.name == "queue_without_consumer"
        assert "'forgotten'" in found.message
        assert desk.tasks.get(forgotten.id).why.queue == "forgotten"
    project.effects.open_gate("door")
    for one in [*running, *behind]:
        one.get(timeout=20)


def test_the_readmes_user_of_redis_can_look(project: Project) -> None:
    url = granted(project.redis.client())
    narrow = project.with_settings(broker_url=url, result_url=url)
    narrow.start_worker("one")
    holder = narrow.begin("locked_gate", "contract 7", "door")
    waits = narrow.send("unique", "contract 8", countdown=3600)
    queued = narrow.send("work", 0, queue="celery-slow")
    with Desk(narrow.app) as desk:
        status = desk.status()
        assert (status.tasks["running"], status.tasks["waiting"], status.tasks["queued"]) == (
            1,
            1,
            1,
        )
        assert desk.tasks.get(queued.id).why.before == 0
        assert {one.holders[0].task_id for one in desk.objects.page().items} == {
            holder.id,
            waits.id,
        }
        assert [one.claims for one in desk.workers.all()] == [1]
        assert len(desk.tasks.page().items) == 3
    project.effects.open_gate("door")
    holder.get(timeout=20)
