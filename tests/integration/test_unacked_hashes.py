"""What a worker was delivered is in an unacked hash of its own and comes out of it, and what was
popped and could not be filed comes back, long before anybody would look at it.
"""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import WORKERS
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

UNACKED_LIST = "celery-reliable.unacked:reliable"


def test_what_could_not_be_acknowledged_is_before_the_worker_ends(
    apart: Project, ledger_server: RedisServer
) -> None:
    one = apart.start_worker("one")
    results = [apart.send("plain_late", gate) for gate in ("a", "b")]
    for result in results:
        apart.effects.run_of(result.id)
    client = apart.redis.client()
    client.execute_command("ACL", "SETUSER", "default", "-hdel")
    apart.effects.open_gate("a")
    results[0].get(timeout=10)
    # While it works on: what ends during the stop is acknowledged at its very end.
    wait_for(lambda: client.execute_command("ACL", "LOG"), 10, "an acknowledgement is refused")
    one.signal_main(signal.SIGTERM)
    client.execute_command("ACL", "SETUSER", "default", "+hdel")
    apart.effects.open_gate("b")
    assert one.wait_until_ended() == 0
    assert not client.keys("unacked:*")
    assert not client.exists(UNACKED_LIST)
    assert not ledger_server.client().zcard(WORKERS)
    assert client.llen("celery") == 0


BACK_SECONDS = 10


@pytest.fixture
def far(project: Project, proxy: RedisProxy) -> Worker:
    """A worker behind the proxy that pops its messages: it has a second queue."""
    behind = project.with_settings(broker_url=proxy.url())
    worker = behind.start_worker("far", options=("-Q", "q,spare"), concurrency=1)
    client = project.redis.client()
    # Its waker waits likewise.
    wait_for(lambda: [c["cmd"] for c in client.client_list()].count("brpop") == 2, 10, "it waits")
    return worker


def popped(project: Project, proxy: RedisProxy) -> str:
    """Send a task, have the worker's pop answered, and keep the answer; return the id."""
    client = project.redis.client()
    for _ in range(20):
        proxy.stall_replies()
        sent = project.send("work", 0, queue="q").id
        with suppress(AssertionError):
            wait_for(lambda: not client.llen("q"), 1, "it is popped")
            return sent
        # A pop was over just then, and the next was not asked for.
        proxy.mend()
        project.effects.run_of(sent)
    raise AssertionError("never was it popped")


def comes_back(project: Project, task_id: str) -> None:
    """Wait until the task is in its queue again, or has begun, and compare how long that took."""
    client, since = project.redis.client(), project.effects.now()
    wait_for(lambda: client.llen("q") or project.effects.runs(task_id), 30, "it is back")
    assert project.effects.now() - since <= BACK_SECONDS


@promise("nothing-lost")
def test_a_worker_that_is_killed_between_pop_and_filing(
    project: Project, proxy: RedisProxy, far: Worker
) -> None:
    project.start_worker("sweeper", options=("-Q", "nothing"), concurrency=1)
    task_id = popped(project, proxy)
    far.kill_group()
    proxy.mend()
    comes_back(project, task_id)


@promise("nothing-lost")
def test_a_worker_that_lives_and_loses_the_connection_it_waits_on(
    project: Project, proxy: RedisProxy, far: Worker
) -> None:
    task_id = popped(project, proxy)
    proxy.cut()
    proxy.mend()
    comes_back(project, task_id)
    project.effects.run_of(task_id)
    assert len(project.effects.runs(task_id)) == 1
    assert far.is_running
