"""`unique="queued"`: a task has its object from its publication to its end, however it ends."""

from __future__ import annotations

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from celery_reliable import ObjectBusy
from tests.integration.conftest import Project
from tests.integration.figures import RECORD, wait_until_free
from tests.support.waiting import wait_for


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
            return client.hmget(key, "state", "attempt") == [b"queued", b"1"]

        wait_for(waits_for_its_second_turn, 10, "it was queued again")
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
