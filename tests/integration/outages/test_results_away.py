"""The result backend is away when a task ends: it is no reason to do the work again."""

from __future__ import annotations

import hashlib

import pytest
from celery import chord, uuid
from celery.backends import redis as redis_backend

from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_a_chord_goes_on_when_the_reply_to_its_last_member_is_lost(
    project: Project, results: RedisServer
) -> None:
    """Celery has counted the member then, and waits for its process to send the body."""
    with RedisProxy(results.port) as proxy:
        behind = project.with_settings(result_url=proxy.url())
        behind.start_worker("one", concurrency=1)
        # Before 5.7 Celery has no script for it.
        script: str | None = getattr(redis_backend, "CHORD_PART_RETURN_LUA", None)
        counts: dict[str, str] = {"command": "ZADD"}
        if script is not None:
            counts = {"script": hashlib.sha1(script.encode()).hexdigest()}
        lost = proxy.drop_reply(**counts, nth=2)
        add, total = behind.task("add"), behind.task("total")
        body = chord([add.s(1, 1), add.s(2, 2)])(total.s())
        wait_for(body.ready, 40, "the body's outcome")
        lost.wait()
    assert (body.state, body.result) == ("SUCCESS", 6)
    assert len(project.effects.runs(body.id)) == 1
    client = project.redis.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 15, "an end of every task")


@promise("nothing-lost")
def test_a_chord_goes_on_whose_body_could_not_be_published(project: Project) -> None:
    """Celery removes the chord's counts even then: nobody would send the body any more."""
    body_id, client = uuid(), project.redis.client()
    with RedisProxy(project.redis.port) as proxy:
        behind = project.with_settings(broker_url=proxy.url(), reliable=SOON)
        behind.start_worker("one", concurrency=1)
        about = f"task:{body_id}"
        away = proxy.drop_request(containing=about, times=None)
        add, total = behind.task("add"), behind.task("total")
        body = chord([add.s(1, 1), add.s(2, 2)])(total.s().set(task_id=body_id))
        away.wait(timeout_seconds=30)
        client.config_set("maxmemory", 1)
        refused = proxy.watch(containing=about)
        proxy.remove(away)
        wait_for(lambda: refused.matched, 30, "a publication that is refused")
        at = project.effects.now()
        wait_for(lambda: project.effects.now() - at > 1, 5, "what comes of it")
        client.config_set("maxmemory", 0)
        wait_for(body.ready, 90, "the body's outcome")
        assert (body.state, body.result) == ("SUCCESS", 6)
        wait_for(lambda: not client.keys(RECORD + "*"), 30, "an end of every task")
    assert len(project.effects.runs(body_id)) == 1
    client.close()
