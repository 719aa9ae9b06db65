"""The same object once: real workers, real kills."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from celery_reliable import ObjectBusy, ObjectIdError
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import LOCKS, RECORD, wait_until_free
from tests.support.processes import Worker
from tests.support.waiting import wait_for


def test_whoever_calls_what_is_skipped_or_refused_hears_of_it_and_its_chain_goes_on(
    project: Project, workers: dict[str, Worker]
) -> None:
    holder = project.send("locked_gate", "object", "gate")
    strict = project.send("locked_fail", "object", 3.0)
    for one in (holder, strict):
        project.effects.run_of(one.id)
    locked, work, listed = (project.task(name) for name in ("locked_gate", "work", "listed"))

    refused = project.send("locked_fail", "object", 0.01)
    skipped = locked.delay("object", "gate")

    with pytest.raises(ObjectBusy, match=strict.id):
        refused.get(timeout=10)
    # As the only failure it stays, as a dead letter.
    wait_for(lambda: DeadLetters(project.app).count() == 1, 10, "it is a dead letter")
    DeadLetters(project.app).discard(refused.id)
    told = {"skipped": holder.id}
    assert skipped.get(timeout=10) == told
    assert skipped.state == "SUCCESS"
    # Whoever wants no result has none.
    silent = project.send("locked_gate", "object", "gate", ignore_result=True)
    wait_for(lambda: not project.redis.client().exists(RECORD + silent.id), 10, "skipped")
    assert not project.redis.client(1).exists(f"celery-task-meta-{silent.id}")
    member = locked.si("object", "gate")
    last = chain(member, work.si(0.01)).apply_async()
    assert last.get(timeout=10) == "worked"
    assert last.parent.get(timeout=5) == told
    # Somebody waits for the last one too, and for members and body of groups and chords.
    assert chain(work.si(0.01), member).apply_async().get(timeout=10) == told
    assert group(work.si(0.01), member).apply_async().get(timeout=10) == ["worked", told]
    assert chord([work.si(0.01), work.si(0.01)], member).apply_async().get(timeout=10) == told
    gathered = chord([work.si(0.01), member], listed.s()).apply_async()
    assert gathered.get(timeout=10) == ["worked", told]
    # What comes behind it gets what it gives.
    assert chain(member, listed.s()).apply_async().get(timeout=10) == told
    project.effects.open_gate("gate")
    assert holder.get(timeout=10) == "object"
    assert strict.get(timeout=10) == "object"
    assert {run.task_id for run in project.effects.runs("object")} == {holder.id, strict.id}
    wait_until_free(project.redis)


def test_a_call_without_the_object_is_refused_where_it_is_made(project: Project) -> None:
    with pytest.raises(ObjectIdError, match="project\\.locked"):
        # By name, where Celery itself does not look at the arguments.
        project.app.send_task("project.locked", kwargs={"seconds": 1})
    assert not project.redis.client().keys("*task*")


def test_an_attempt_that_goes_on_leaves_its_object_to_who_comes_next(project: Project) -> None:
    first = project.send("once_fail", "object", ["retry", "finish"])
    second = project.send("once_fail", "object")

    # They begin one after the other, and the retry behind both.
    project.start_worker("one", concurrency=1)

    assert second.get(timeout=10) == "run 1"
    assert project.effects.runs(first.id)


def test_a_success_keeps_its_object_from_its_own_id_too_and_a_failure_keeps_nothing(
    project: Project,
) -> None:
    project.start_worker("one")
    client = project.redis.client()
    # Kept for longer than this test takes.
    failed = project.send("once_fail", "object", ["fail"])
    wait_for(lambda: client.hget(RECORD + failed.id, "state") == b"dead", 15, "buried")
    wait_for(lambda: not client.keys(LOCKS), 5, "no object held")
    first = project.send("once_fail", "object")
    assert first.get(timeout=10) == "run 1"
    second = project.send("once_fail", "object")
    with pytest.raises(ObjectBusy, match=first.id):
        second.get(timeout=10)
    assert project.send("once_fail", "another").get(timeout=10) == "run 1"
    assert not project.effects.runs(second.id)
    wait_for(lambda: not client.exists(RECORD + first.id), 5, "settled")

    project.send("once_fail", "object", task_id=first.id)

    wait_for(lambda: client.hget(RECORD + first.id, "state") == b"dead", 15, "ended")
    assert len(project.effects.runs(first.id)) == 1
