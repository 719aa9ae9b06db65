"""`unique="queued"`: one of many calls is published, and all are answered with its result."""

from __future__ import annotations

import pytest
from celery import chain, chord, group

from celery_reliable import ObjectBusy
from celery_reliable.ledger.scripts import script
from tests.integration.conftest import SOON, Project
from tests.integration.figures import LOCKS, RECORD, wait_until_free
from tests.integration.objects.conftest import Caller
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

RESULTS = "celery-task-meta-*"


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_caller_is_killed_before_it_has_the_object(
    soon: Project, proxy: RedisProxy, start_caller: Caller, is_overtaken: bool
) -> None:
    behind_proxy = soon.with_settings(broker_url=proxy.url())
    rule = proxy.drop_request(script=script("lock").sha, times=None)
    caller = start_caller(behind_proxy, "unique", "object", 1, 1)
    rule.wait(timeout_seconds=30)
    caller.kill()
    caller.wait()
    client = soon.redis.client()
    (key,) = client.keys(RECORD + "*")
    task_id = key.decode().removeprefix(RECORD)
    assert not client.keys(LOCKS)
    second = soon.send("unique", "object", ["gate:gate"]) if is_overtaken else None
    soon.start_worker("one")
    if second is None:
        # It is sent from its record.
        soon.effects.run_of(task_id)
    else:
        assert second.id != task_id
        soon.effects.run_of(second.id)
        wait_for(lambda: not client.exists(key), 20, "it was sent, and skipped")
        soon.effects.open_gate("gate")
        assert second.get(timeout=10) == "run 1"
    wait_until_free(soon.redis)
    assert len(soon.effects.runs()) == 1


def test_a_caller_is_killed_before_it_has_sent(
    soon: Project, proxy: RedisProxy, start_caller: Caller
) -> None:
    # The broker is silent to the caller, and the ledger is not.
    behind_proxy = soon.with_settings(
        broker_url=proxy.url(), reliable={**SOON, "REDIS_URL": soon.redis.url()}
    )
    proxy.stall()
    caller = start_caller(behind_proxy, "unique", "object", 1, 1, "gate:gate")
    client = soon.redis.client()
    wait_for(lambda: client.keys(LOCKS), 30, "it has the object")
    caller.kill()
    caller.wait()
    first = soon.send("unique", "object")
    assert client.keys(RECORD + "*") == [(RECORD + first.id).encode()]
    assert client.llen("celery") == 0
    soon.start_worker("one")
    soon.effects.run_of(first.id)
    assert soon.send("unique", "object").id == first.id
    soon.effects.open_gate("gate")
    assert first.get(timeout=10) == "run 1"
    wait_until_free(soon.redis)
    assert [run.task_id for run in soon.effects.runs()] == [first.id]


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
