"""`unique="queued"`: a task has its object from its publication to its end, however it ends."""

from __future__ import annotations

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError

from celery_reliable import ObjectBusy
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_free
from tests.integration.project import timed


@pytest.mark.full
def test_whatever_ends_a_task_frees_its_object(project: Project) -> None:
    project.start_worker("one")
    silent = project.send("unique", "object", ignore_result=True)
    project.effects.run_of(silent.id)
    wait_until_free(project.redis)
    for links in (1, 3):
        replaced = project.send("unique_replaced", "object", links)
        assert replaced.get(timeout=10) == links + 1
        wait_until_free(project.redis)
    ids = set()
    for _ in range(3):
        result = project.send("unique", "object")
        assert result.get(timeout=10) == "run 1"
        ids.add(result.id)
        wait_until_free(project.redis)
    terminated = project.send("unique", "object", ["gate:never"])
    project.effects.run_of(terminated.id)
    terminated.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        terminated.get(timeout=15)
    wait_until_free(project.redis)
    # A call right after a failure is not answered with it.
    for _ in range(4):
        limited = project.send("unique", "object", ["gate:never"], time_limit=1)
        ids.add(limited.id)
        with pytest.raises(TimeLimitExceeded):
            limited.get(timeout=10)
    assert len(ids) == 7


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_call_after_an_outcome_is_another_task_though_a_hook_still_has_the_object(
    project: Project, is_failing: bool
) -> None:
    timed.add_tasks(project.app)
    project.start_worker("one", app="tests.integration.project.timed")
    first = project.send("ends_slowly", "object", is_failing)
    first.get(timeout=10, propagate=False)

    second = project.send("ends_slowly", "object", is_failing)

    assert second.id != first.id
    assert project.effects.client.lrange("hooks", 0, -1) == [first.id.encode()]
    second.get(timeout=10, propagate=False)
    assert not project.effects.overlaps()
    assert len(project.effects.runs()) == 2


@pytest.mark.full
def test_for_whose_id_somebody_waits_is_published_in_any_case(project: Project) -> None:
    project.start_worker("one")
    first = project.send("unique_fail", "object", ["gate:gate"])
    project.effects.run_of(first.id)
    unique, add = project.task("unique_fail"), project.task("add")
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
        "by name": project.app.send_task("project.unique_fail", ("object",)),
    }
    waited_for["linked"] = unique.AsyncResult("linked")
    for how, result in waited_for.items():
        assert result.id != first.id, how
        with pytest.raises(ObjectBusy, match=first.id):
            result.get(timeout=20)
    project.effects.open_gate("gate")
    assert first.get(timeout=10) == "run 1"
    assert {run.task_id for run in project.effects.runs() if run.task == unique.name} == {first.id}
