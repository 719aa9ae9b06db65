"""The desk of other brokers, of narrow users, and beside workers of before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_reliable.operations import Desk, Wait, check
from tests.integration.conftest import ONE_EACH, Project
from tests.support.acl import granted
from tests.support.rabbit_server import RabbitServer
from tests.support.waiting import wait_for


@pytest.mark.full
def test_a_rabbit_is_asked_by_passive_declaration(
    project: Project, start_rabbit: Callable[..., RabbitServer]
) -> None:
    on_rabbit = project.with_settings(
        broker_url=start_rabbit().url(), reliable={"REDIS_URL": project.redis.url()}
    )
    on_rabbit.start_worker("one", options=ONE_EACH)
    running = [on_rabbit.send("gate", "door") for _ in range(2)]
    for one in running:
        project.effects.run_of(one.id)
    behind = [on_rabbit.send("work", 0) for _ in range(6)]
    forgotten = on_rabbit.send("work", 0, queue="forgotten")
    with Desk(on_rabbit.app) as desk:

        def queues() -> dict[str, tuple[int | None, int | None]]:
            return {one.name: (one.depth, one.consumers) for one in desk.queues.all()}

        wait_for(lambda: queues().get("forgotten") == (1, 0), 20, "one message, and no consumer")
        depth, consumers = queues()["celery"]
        assert depth is not None
        assert 0 < depth <= 6
        assert consumers == 1
        waits = desk.tasks.get(behind[-1].id).why
        assert (waits.kind, waits.queue, waits.depth) == (Wait.QUEUE, "celery", depth)
        assert desk.tasks.get(running[0].id).why.kind is Wait.RUNNING
        found = {one.name: one.message for one in check(desk.status())}
        assert found.keys() == {"queue_without_consumer"}
        assert "'forgotten'" in found["queue_without_consumer"]
        assert desk.tasks.get(forgotten.id).why.queue == "forgotten"
    project.effects.open_gate("door")
    for one in [*running, *behind]:
        one.get(timeout=20)


def test_the_readmes_user_of_redis_can_look(project: Project) -> None:
    url = granted(project.redis.client())
    narrow = project.with_settings(broker_url=url, result_url=url)
    narrow.start_worker("one")
    holder = narrow.send("locked_gate", "contract 7", "door")
    project.effects.run_of(holder.id)
    waits = narrow.send("unique", "contract 8", countdown=3600)
    queued = narrow.send("work", 0, queue="celery-slow")
    with Desk(narrow.app) as desk:
        status = desk.status()
        assert (status.tasks["running"], status.tasks["parked"], status.tasks["queued"]) == (
            1,
            1,
            1,
        )
        assert desk.tasks.get(queued.id).why.before == 0
        assert {one.holders[0].task_id for one in desk.objects.page().items} == {
            holder.id,
            waits.id,
        }
        assert [one.unacked for one in desk.workers.all(unacked=True)] == [1]
        assert len(desk.tasks.page().items) == 3
    project.effects.open_gate("door")
    holder.get(timeout=20)
