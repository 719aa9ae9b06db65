"""`unique="queued"`: one of many calls is published, and all are answered with its result."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from celery_reliable import ObjectBusy
from tests.integration.conftest import Project

pytestmark = pytest.mark.full


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
