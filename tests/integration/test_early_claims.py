"""Messages that are filed as they leave their queue, and claimed by then if a process is idle."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.integration.conftest import TWO_QUEUES, Project
from tests.integration.figures import WAKER, record_of
from tests.support.acl import granted
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART") or os.environ.get("TESTS_POPS")),
        reason="these workers pop their messages",
    ),
]


def test_what_is_received_slowly_is_nobody_elses_meanwhile(project: Project) -> None:
    # Many looks fit between its claim and the request that stands behind it.
    quick = project.with_settings(reliable={"SWEEP_SECONDS": 0.1})
    quick.start_worker("one", environ={"TRAP": "receives slowly"})
    # The server knows all scripts then.  What was waited for while the worker was busy would not
    # be claimed; each wait lasts a second.
    quick.send("work", 0).get(timeout=10)
    client = project.redis.client()
    wait_for(lambda: not client.keys("unacked:one*"), 10, "it is acknowledged")
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 1, 10, "it waits anew")
    for _ in range(5):
        result = quick.send("work", 0.5)
        assert result.get(timeout=20) == "worked"
        assert [run.attempt for run in project.effects.runs(result.id)] == [1]


#: A worker compares what is filed for it with what it holds every 5 s, and gives back what it has
#: found twice; a pass releases the claim of that.
SOON_SECONDS = 15.0


def waits(project: Project, command: str = "blmove") -> list[Any]:
    """The connections that wait so."""
    return [one for one in project.redis.client().client_list() if one["cmd"] == command]


def test_what_came_to_a_lost_connection_begins_soon_after_that(
    project: Project, proxy: RedisProxy
) -> None:
    """The server believes that its client is there until the wait is over."""
    far = project.with_settings(broker_url=proxy.url())
    far.start_worker(concurrency=1)
    project.send("work", 0).get(timeout=10)
    # Who has begun to wait since now, with nothing to do, claims; each wait lasts a second.
    client = project.redis.client()
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 1 and waits(project), 20, "it waits anew")
    proxy.stall_replies()
    result = project.send("work", 0)
    wait_for(lambda: record_of(project.redis, result.id).get("state") == "running", 10, "a claim")
    proxy.sever()
    proxy.mend()
    assert result.get(timeout=SOON_SECONDS + 10) == "worked"
    assert len(far.effects.runs(result.id)) == 1
    wait_for(lambda: not client.keys("unacked:*"), 10, "it is acknowledged")
    assert not client.exists("celery")
    # And it goes on.
    for _ in range(3):
        assert project.send("work", 0).get(timeout=10) == "worked"


def test_what_a_server_that_died_has_left_in_an_inbox_is_run(project: Project) -> None:
    """Of a plain task: nobody would send it again.  Also by a worker that waits otherwise."""
    client = project.redis.client()
    first, second = (project.send("plain_work", 0.01) for _ in range(2))
    # As if it had died behind the first of what a worker had sent.
    client.lmove("celery", "celery-reliable.inbox:celery", "RIGHT", "LEFT")
    project.start_worker(concurrency=1, options=TWO_QUEUES)
    for one in (first, second):
        assert one.get(timeout=20) == "worked"
        assert len(project.effects.runs(one.id)) == 1
    assert not client.exists("celery-reliable.inbox:celery")


def test_a_user_without_the_rights_pops(project: Project) -> None:
    url = granted(project.redis.client(), without=("+blmove", "+lmove"))
    narrow = project.with_settings(broker_url=url, result_url=url)
    narrow.start_worker(concurrency=1)
    for _ in range(3):
        assert narrow.send("work", 0).get(timeout=20) == "worked"
    wait_for(lambda: len(waits(narrow, "brpop")) == 2, 10, "it pops, and its waker listens")


def test_a_worker_that_is_not_the_waker_any_more_does_not_listen(project: Project) -> None:
    """The bell would ring for it, and not for the one that is."""
    project.start_worker("one")
    wait_for(lambda: waits(project, "brpop"), 10, "it listens")
    project.redis.client().set(WAKER, "two@host/1.0")
    wait_for(lambda: not waits(project, "brpop"), 10, "it does not listen")
