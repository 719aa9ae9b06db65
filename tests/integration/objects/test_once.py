"""`once_for_seconds`: after a success the object stays held for a time, whoever is killed."""

from __future__ import annotations

import pytest

from celery_reliable import ObjectBusy
from celery_reliable.ledger.scripts import script
from tests.integration.conftest import Project
from tests.integration.figures import LOCKS, RECORD
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


def settled(redis_server: RedisServer, task_id: str) -> None:
    client = redis_server.client()
    wait_for(lambda: not client.exists(RECORD + task_id), 20, f"{task_id} settled")


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
    settled(project.redis, first.id)
    assert 0 < client.pttl(lock) <= 60_000
    assert len(project.effects.finished(first.id)) == 1
    second = project.send("once_fail", "object")
    with pytest.raises(ObjectBusy, match=first.id):
        second.get(timeout=10)
