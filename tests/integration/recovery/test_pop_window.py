"""What was popped and could not be filed comes back, long before anybody would look at it."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.conftest import Scale
from tests.integration.conftest import Project, Start
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

BACK_SECONDS = 10


def popped(project: Project, proxy: RedisProxy, queues: list[str]) -> list[str]:
    """Send a task to each queue, have its worker's pop answered, and keep the answers."""
    client = project.redis.client()
    for _ in range(20):
        proxy.stall_replies()
        sent = [project.send("work", 0, queue=queue).id for queue in queues]
        with suppress(AssertionError):
            wait_for(lambda: not any(client.llen(queue) for queue in queues), 1, "all are popped")
            return sent
        # A pop was over just then, and the next was not asked for.
        proxy.mend()
        wait_for(lambda: all(project.effects.runs(one) for one in sent), 15, "they run")  # noqa: B023
    raise AssertionError("never were all of them popped")


def is_back(redis_server: RedisServer, effects: Effects, queue: str, task_id: str) -> bool:
    return bool(redis_server.client().llen(queue) or effects.runs(task_id))


def start_in_the_window(
    project: Project, proxy: RedisProxy, start_worker: Start, count: int
) -> tuple[list[Worker], list[str]]:
    """Start so many workers, each of which waits on a queue of its own, and one that nobody uses:
    who consumes a single queue pops nothing.
    """
    far = project.with_settings(broker_url=proxy.url())
    queues = [f"q{number}" for number in range(count)]
    workers = [
        start_worker(
            queue, project=far, options=("-Q", f"{queue},{queue}-spare"), concurrency=1, wait=False
        )
        for queue in queues
    ]
    for worker in workers:
        worker.wait_until_ready()
    client = project.redis.client()
    wait_for(
        lambda: sum("brpop" in row["cmd"] for row in client.client_list()) >= count, 10, "all wait"
    )
    return workers, queues


@promise("nothing-lost")
def test_a_worker_that_is_killed_between_pop_and_filing(
    project: Project, proxy: RedisProxy, start_worker: Start, scale: Scale
) -> None:
    start_worker("sweeper", options=("-Q", "nothing"), concurrency=1)
    took = []
    for _ in range(scale.of(full=5, small=1)):
        workers, queues = start_in_the_window(
            project, proxy, start_worker, scale.of(full=4, small=2)
        )
        sent = popped(project, proxy, queues)
        for worker in workers:
            worker.kill_group()
        killed_at = project.effects.now()
        proxy.mend()
        left = dict(zip(queues, sent, strict=True))
        while left:
            assert project.effects.now() - killed_at < 30, left
            for queue, task_id in list(left.items()):
                if is_back(project.redis, project.effects, queue, task_id):
                    took.append(project.effects.now() - killed_at)
                    del left[queue]
        project.redis.client().delete(*queues)
    print("seconds until they were back:", [round(one, 1) for one in took])
    assert max(took) <= BACK_SECONDS


@promise("nothing-lost")
def test_a_worker_that_lives_and_loses_the_connection_it_waits_on(
    project: Project, proxy: RedisProxy, start_worker: Start, scale: Scale
) -> None:
    _, queues = start_in_the_window(project, proxy, start_worker, scale.of(full=4, small=2))
    for _ in range(scale.of(full=5, small=1)):
        sent = popped(project, proxy, queues)
        proxy.cut()
        cut_at = project.effects.now()
        proxy.mend()
        for queue, task_id in zip(queues, sent, strict=True):
            wait_for(
                lambda: is_back(project.redis, project.effects, queue, task_id),  # noqa: B023
                30,
                "it is back",
            )
        took = project.effects.now() - cut_at
        print("seconds until they were back:", round(took, 1))
        assert took <= BACK_SECONDS
        for task_id in sent:
            project.effects.run_of(task_id)
            assert len(project.effects.runs(task_id)) == 1
