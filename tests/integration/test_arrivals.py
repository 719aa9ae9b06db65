"""Messages that are filed as they leave their queue, and claimed if a process is idle."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.conftest import TWO_QUEUES, Project
from tests.integration.figures import record_of
from tests.integration.project.awkward import add_tasks
from tests.integration.shifts import POOL
from tests.support.acl import granted
from tests.support.processes import Worker
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART") or os.environ.get("TESTS_POPS")),
        reason="these workers pop their messages",
    ),
]

AWKWARD = "tests.integration.project.awkward"
#: A worker compares what is filed for it with what it holds every 5 s, and gives back what it has
#: found twice; a pass releases the claim of that.
SOON_SECONDS = 15.0


@pytest.fixture(params=["prefork", "shifts"])
def pooled(request: pytest.FixtureRequest, project: Project) -> Project:
    """The project, whose workers have either pool of processes."""
    if request.param == "prefork":
        return project
    return project.with_settings(celery={"worker_pool": POOL})


def start(project: Project, name: str = "one", **options: Any) -> Worker:
    pool = "" if "worker_pool" in project.settings.celery else "prefork"
    return project.start_worker(name, **{"pool": pool, "concurrency": 1, **options})


def waits(project: Project, command: str = "blmove") -> list[Any]:
    """The connections that wait so."""
    return [one for one in project.redis.client().client_list() if one["cmd"] == command]


def wait_until_idle(project: Project, worker: Worker | None = None) -> None:
    """Wait until a worker has begun to wait since now, with nothing to do: then it claims."""
    client = project.redis.client()
    wait_for(lambda: waits(project), 10, "it waits")
    # Each wait lasts a second.
    began, _ = client.time()
    wait_for(lambda: client.time()[0] > began + 1 and waits(project), 10, "it waits anew")


def sent_to_frozen(project: Project, worker: Worker, name: str, *args: Any) -> Any:
    """A task whose message has left its queue for a worker that does not move."""
    client = project.redis.client()
    for _ in range(20):
        wait_until_idle(project)
        worker.freeze()
        result = project.send(name, *args)
        with suppress(AssertionError):
            wait_for(lambda: not client.exists("celery"), 2, "it has left its queue")
            return result
        # The worker's wait was over just then, and the next was not begun.
        worker.thaw()
        project.effects.run_of(result.id)
    raise AssertionError("it was never frozen while it waited")


@pytest.mark.parametrize("name", ["plain_work", "work"])
def test_what_leaves_its_queue_as_its_worker_dies_is_run_by_another(
    pooled: Project, name: str
) -> None:
    soon = pooled.with_settings(reliable={"LEASE_SECONDS": 4, "SWEEP_SECONDS": 1})
    add_tasks(soon.app)
    one = start(soon, app=AWKWARD)
    result = sent_to_frozen(soon, one, name, 0.01)
    client = soon.redis.client()
    assert [client.hlen(one) for one in client.keys("unacked:*")] == [1]
    one.kill_group()
    start(soon, "two", app=AWKWARD)
    assert soon.effects.run_of(result.id).worker.startswith("two@")
    wait_for(lambda: soon.effects.finished(result.id), 20, "its end")
    assert len(soon.effects.runs(result.id)) == 1


def test_what_came_to_a_lost_connection_begins_soon_after_that(
    project: Project, proxy: RedisProxy
) -> None:
    """The server believes that its client is there until the wait is over."""
    far = project.with_settings(broker_url=proxy.url())
    start(far)
    project.send("work", 0).get(timeout=10)
    wait_until_idle(far)
    client = project.redis.client()
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


def test_a_queue_more_and_less_while_it_waits(project: Project) -> None:
    one = start(project)
    name = f"one@{os.uname().nodename}"
    control = project.app.control
    assert project.send("work", 0).get(timeout=10) == "worked"
    assert control.add_consumer("more", reply=True, limit=1, timeout=10)
    wait_for(lambda: waits(project, "brpop"), 10, "it waits for both")
    for queue in ("more", "celery", "more"):
        assert project.send("work", 0, queue=queue).get(timeout=10) == "worked"
    assert control.cancel_consumer("celery", reply=True, limit=1, timeout=10)
    wait_for(lambda: waits(project), 10, "it waits for the other")
    left = project.send("work", 0)
    assert project.send("work", 0, queue="more").get(timeout=10) == "worked"
    assert not project.effects.runs(left.id)
    assert control.add_consumer("celery", reply=True, limit=1, timeout=10)
    assert left.get(timeout=10) == "worked"
    assert one.is_running, name


def test_what_a_server_that_died_has_left_in_an_inbox_is_run(project: Project) -> None:
    """Of a plain task: nobody would send it again.  Also by a worker that waits otherwise."""
    client = project.redis.client()
    first, second = (project.send("plain_work", 0.01) for _ in range(2))
    # As if it had died behind the first of what a worker had sent.
    client.lmove("celery", "celery-reliable.inbox:celery", "RIGHT", "LEFT")
    start(project, options=TWO_QUEUES)
    for one in (first, second):
        assert one.get(timeout=20) == "worked"
        assert len(project.effects.runs(one.id)) == 1
    assert not client.exists("celery-reliable.inbox:celery")


def test_a_user_without_the_rights_pops(project: Project) -> None:
    url = granted(project.redis.client(), without=("+blmove", "+lmove"))
    narrow = project.with_settings(broker_url=url, result_url=url)
    start(narrow)
    for _ in range(3):
        assert narrow.send("work", 0).get(timeout=20) == "worked"
    wait_for(lambda: waits(narrow, "brpop"), 10, "it pops")
