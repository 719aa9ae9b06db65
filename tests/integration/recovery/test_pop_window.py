"""What was popped and could not be filed comes back, long before anybody would look at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from celery_reliable.recovery.sweeper import Sweeper
from tests.conftest import Scale
from tests.integration.conftest import Project, Start
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

BACK_SECONDS = 10
QUEUED_MS = 60_000


@pytest.fixture
def sweeper(project: Project) -> Iterator[Sweeper]:
    found = Sweeper(project.app)
    found.run_if_due()
    yield found
    found.close()


def sweep(sweeper: Sweeper, redis_server: RedisServer) -> int:
    """Run a pass now, whenever the last one was; return how many messages it sent again."""
    redis_server.client().hdel(sweeper.ledger.keys.meta, "passed_ms")
    report, _ = sweeper.run_if_due()
    assert report is not None
    return report.resent


def nothing(client: Any, keys: Any, task_id: str) -> None:
    """It was sent just now."""


def was_sent_twice_again(client: Any, keys: Any, task_id: str) -> None:
    client.hset(keys.record(task_id), "resends", 2)
    client.zincrby(keys.due, QUEUED_MS, task_id)


def has_waited_for_five_minutes(client: Any, keys: Any, task_id: str) -> None:
    client.hincrby(keys.record(task_id), "published_ms", -300_000)
    client.zincrby(keys.due, 90_000, task_id)


@pytest.mark.parametrize("countdown", [0, 40])
@pytest.mark.parametrize("before", [nothing, was_sent_twice_again, has_waited_for_five_minutes])
def test_what_may_have_been_popped_is_sent_again_in_the_next_pass(
    project: Project, sweeper: Sweeper, before: Callable[..., None], countdown: int
) -> None:
    client = project.redis.client()
    task_id = project.send("work", 0, countdown=countdown).id
    before(client, sweeper.ledger.keys, task_id)
    client.rpop("celery")
    assert sweep(sweeper, project.redis) == 0

    sweeper.ledger.passes.look_ahead(ago_ms=5000)

    assert sweep(sweeper, project.redis) == 1
    assert client.llen("celery") == 1
    # It was asked for once.
    client.rpop("celery")
    assert sweep(sweeper, project.redis) == 0


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
