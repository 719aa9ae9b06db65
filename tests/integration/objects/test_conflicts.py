"""The same object once, by `on_conflict` and from its publication on: real workers, real kills."""

from __future__ import annotations

from functools import partial

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from celery_reliable import ObjectBusy, ObjectIdError
from celery_reliable.ledger.scripts import script
from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import LOCKS, RECORD, wait_until_free, wait_until_gone
from tests.integration.project.defined import KINDS
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for


def test_whoever_calls_what_is_skipped_or_refused_hears_of_it_and_its_chain_goes_on(
    shared: Project,
) -> None:
    holder = shared.begin("locked_gate", "object", "gate")
    strict = shared.begin("locked_fail", "object", 3.0)
    locked, work, listed = (shared.task(name) for name in ("locked_gate", "work", "listed"))

    refused = shared.send("locked_fail", "object", 0.01)
    skipped = locked.delay("object", "gate")

    with pytest.raises(ObjectBusy, match=strict.id):
        refused.get(timeout=10)
    wait_for(lambda: DeadLetters(shared.app).count() == 1, 10, "it is a dead letter")
    DeadLetters(shared.app).discard(refused.id)
    told = {"skipped": holder.id}
    assert skipped.get(timeout=10) == told
    assert skipped.state == "SUCCESS"
    silent = shared.send("locked_gate", "object", "gate", ignore_result=True)
    wait_for(lambda: not shared.redis.client().exists(RECORD + silent.id), 10, "skipped")
    assert not shared.redis.client(1).exists(f"celery-task-meta-{silent.id}")
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
    shared.effects.open_gate("gate")
    assert holder.get(timeout=10) == "object"
    assert strict.get(timeout=10) == "object"
    assert {run.task_id for run in shared.effects.runs("object")} == {holder.id, strict.id}
    wait_until_free(shared.redis)


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
    shared: Project,
) -> None:
    client = shared.redis.client()
    # Kept for longer than this test takes.
    failed = shared.send("once_fail", "object", ["fail"])
    wait_for(lambda: client.hget(RECORD + failed.id, "state") == b"dead", 15, "buried")
    wait_for(lambda: not client.keys(LOCKS), 5, "no object held")
    # Nor does one that leaves no dead letter.
    wait_until_gone(shared.redis, shared.send("once_undead", "object", ["fail"]).id)
    assert not client.keys(LOCKS)
    first = shared.send("once_fail", "object")
    assert first.get(timeout=10) == "run 1"
    second = shared.send("once_fail", "object")
    with pytest.raises(ObjectBusy, match=first.id):
        second.get(timeout=10)
    assert shared.send("once_fail", "another").get(timeout=10) == "run 1"
    assert not shared.effects.runs(second.id)
    wait_for(lambda: not client.exists(RECORD + first.id), 5, "settled")

    shared.send("once_fail", "object", task_id=first.id)

    wait_for(lambda: client.hget(RECORD + first.id, "state") == b"dead", 15, "ended")
    assert len(shared.effects.runs(first.id)) == 1


@pytest.mark.full
@promise("effects-at-least-once")
def test_who_died_after_its_success_and_before_it_was_settled_keeps_it_in_the_end(
    project: Project, proxy: RedisProxy
) -> None:
    behind_proxy = project.with_settings(broker_url=proxy.url())
    worker = behind_proxy.start_worker("one")
    rule = proxy.drop_request(script=script("settle").sha, times=None)
    first = project.send("once_fail", "object")
    rule.wait(timeout_seconds=20)
    client = project.redis.client()
    (lock,) = client.keys(LOCKS)
    assert client.get(lock) == f"1:{first.id}".encode()
    worker.kill_group()
    project.start_worker("two")
    wait_until_gone(project.redis, first.id, 20)
    assert 0 < client.pttl(lock) <= 60_000
    assert len(project.effects.finished(first.id)) == 1
    second = project.send("once_fail", "object")
    with pytest.raises(ObjectBusy, match=first.id):
        second.get(timeout=10)


def test_every_callable_names_the_object(shared: Project) -> None:
    for kind in KINDS:
        task = shared.task(kind)
        held = task.delay({"id": 7}, f"first of {kind}")
        wait_for(partial(shared.effects.runs, held.id), 15, f"{kind} runs")
        skipped = task.delay(gate="none", order={"id": 7})
        other = task.delay({"id": 8}, "open")
        shared.effects.open_gate("open")
        assert other.get(timeout=15) == "open", kind
        assert skipped.get(timeout=15) == {"skipped": held.id}, kind
        shared.effects.open_gate(f"first of {kind}")
        assert held.get(timeout=15) == f"first of {kind}"
        assert not shared.effects.runs(skipped.id), kind


@pytest.mark.full
def test_whatever_ends_a_task_frees_its_object(shared: Project) -> None:
    shared.begin("unique", "object", ignore_result=True)
    wait_until_free(shared.redis)
    for links in (1, 3):
        replaced = shared.send("unique_replaced", "object", links)
        assert replaced.get(timeout=10) == links + 1
        wait_until_free(shared.redis)
    ids = set()
    for _ in range(3):
        result = shared.send("unique", "object")
        assert result.get(timeout=10) == "run 1"
        ids.add(result.id)
        wait_until_free(shared.redis)
    terminated = shared.begin("unique", "object", ["gate:never"])
    terminated.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        terminated.get(timeout=15)
    wait_until_free(shared.redis)
    # A call right after a failure is not answered with it.
    for _ in range(4):
        limited = shared.send("unique", "object", ["gate:never"], time_limit=1)
        ids.add(limited.id)
        with pytest.raises(TimeLimitExceeded):
            limited.get(timeout=10)
    assert len(ids) == 7


@pytest.mark.full
def test_who_comes_again_keeps_its_object(shared: Project) -> None:
    client = shared.redis.client()
    for step in ("retry", "reject"):
        first = shared.send("unique", step, [step, f"gate:{step}"], 4)

        def waits_for_its_second_turn(key: str = RECORD + first.id) -> bool:
            return client.hmget(key, "state", "attempt") in (
                [b"waiting", b"1"],
                [b"queued", b"1"],
            )

        wait_for(waits_for_its_second_turn, 10, "it waits again")
        assert shared.send("unique", step).id == first.id
        assert len(shared.effects.runs(first.id)) == 1
        shared.effects.run_of(first.id, 2)
        assert shared.send("unique", step).id == first.id
        shared.effects.open_gate(step)
        assert first.get(timeout=10) == "run 2"
        wait_until_free(shared.redis)
        assert len(shared.effects.runs(first.id)) == 2


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_call_after_an_outcome_is_another_task_though_a_hook_still_has_the_object(
    shared: Project, is_failing: bool
) -> None:
    first = shared.send("ends_slowly", "object", is_failing)
    first.get(timeout=10, propagate=False)

    second = shared.send("ends_slowly", "object", is_failing)

    assert second.id != first.id
    assert shared.effects.client.lrange("hooks", 0, -1) == [first.id.encode()]
    second.get(timeout=10, propagate=False)
    assert not shared.effects.overlaps()
    assert len(shared.effects.runs()) == 2


@pytest.mark.full
def test_for_whose_id_somebody_waits_is_published_in_any_case(shared: Project) -> None:
    first = shared.begin("unique_fail", "object", ["gate:gate"])
    unique, add = shared.task("unique_fail"), shared.task("add")
    member = unique.si("object")
    frozen = member.clone()
    assert frozen.freeze().id != first.id
    waited_for = {
        "frozen": frozen.apply_async(),
        "group": group(member, member).apply_async().results[0],
        "first": chain(member, add.si(1, 2)).apply_async().parent,
        "last": chain(add.si(1, 2), member).apply_async(),
        "header": chord([member], add.si(1, 2)).apply_async().parent.results[0],
        "body": chord([add.si(1, 2), add.si(3, 4)], member).apply_async(),
        "linked": add.apply_async((1, 2), link=member.clone().set(task_id="linked")),
        "host": unique.apply_async(("object",), link=add.si(1, 2)),
        "by name": shared.app.send_task("project.unique_fail", ("object",)),
    }
    waited_for["linked"] = unique.AsyncResult("linked")
    for how, result in waited_for.items():
        assert result.id != first.id, how
        with pytest.raises(ObjectBusy, match=first.id):
            result.get(timeout=20)
    shared.effects.open_gate("gate")
    assert first.get(timeout=10) == "run 1"
    assert {run.task_id for run in shared.effects.runs() if run.task == unique.name} == {first.id}
