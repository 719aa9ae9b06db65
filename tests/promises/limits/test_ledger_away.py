"""Who publishes while the ledger is away hears it: ``NotPublished``, or ``PublishUnknown``.

A worker that starts meanwhile waits, and one that runs goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from celery import chord, group
from kombu.exceptions import EncodeError, OperationalError

from celery_reliable import NotPublished, PublishUnknown
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD
from tests.integration.project import named
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


@promise("ledger-away")
def test_the_ledger_is_away_and_the_broker_is_up(
    project: Project, ledger_server: RedisServer
) -> None:
    """What runs goes on; what comes waits, and runs once the ledger is back."""
    effects = project.effects
    apart = project.with_settings(
        reliable={**SOON, "NAMESPACE": "away", "REDIS_URL": ledger_server.url()},
        celery={"task_default_queue": "away"},
    )
    worker = apart.start_worker("one")
    running, blocker = apart.send("gate", "gate"), apart.send("plain_gate", "blocker")
    for one in (running, blocker):
        effects.run_of(one.id)
    # Recorded, and claimed by nobody yet: both processes are busy.
    fresh = apart.send("work", 0.01)
    ledger_server.stop()
    stopped_at = effects.now()
    effects.open_gate("blocker")
    wait_for(lambda: effects.now() - stopped_at > 8, 15, "twice the lease")
    assert not effects.runs(fresh.id)
    effects.open_gate("gate")
    wait_for(lambda: effects.finished(running.id), 10, "the task that ran has ended")
    ledger_server.start()
    client = ledger_server.client()
    wait_for(lambda: effects.finished(fresh.id), 20, "the fresh one ran")
    wait_for(lambda: not client.keys("*task:*"), 20, "all are settled")
    assert worker.is_running
    assert [len(effects.runs(one.id)) for one in (running, fresh)] == [1, 1]
    assert [client.zcard(key) for key in client.keys("*:workers")] == [1]


#: What the page says that a caller is told.
TOLD = (NotPublished, PublishUnknown)


@promise("ledger-away")
def test_whoever_publishes_while_redis_is_away_is_told_so_by_every_door(
    project: Project, redis_server: RedisServer
) -> None:
    """Each way to publish raises an `OperationalError` that says what is known."""
    named.add_tasks(project.app)
    # From now on the process has connections.  The first call notices that they are lost.
    first = project.send("work", 0)
    redis_server.stop()
    doors = _doors(project)
    raised = {"first": _error_of(doors["delay"])}
    raised |= {name: _error_of(publish) for name, publish in doors.items()}
    assert not {k: v for k, v in raised.items() if not isinstance(v, TOLD)}
    assert not {k: v for k, v in raised.items() if not isinstance(v, OperationalError)}
    redis_server.start()
    with redis_server.client() as client:
        assert client.keys(RECORD + "*") == [(RECORD + first.id).encode()]
        assert client.llen("celery") == 1
    # What kombu cannot write is no outage.
    with pytest.raises(EncodeError):
        project.send("work", object())


def _error_of(publish: Callable[[], object]) -> Exception | None:
    try:
        publish()
    except Exception as exc:
        return exc
    return None


def _doors(project: Project) -> dict[str, Callable[[], object]]:
    """Each way to publish a task."""
    work, add = project.task("work"), project.task("add")
    return {
        "delay": partial(work.delay, 0),
        "in a while": partial(work.apply_async, (0,), countdown=2),
        "much later": partial(work.apply_async, (0,), countdown=300),
        "without retry": partial(work.apply_async, (0,), retry=False),
        "by another queue": partial(work.apply_async, (0,), queue="another"),
        "unique": partial(project.task("unique").delay, "object"),
        "in line": partial(project.task("places_on_gpu").delay, "gate"),
        "for a worker": partial(project.task("on_gpu").delay, "gate"),
        "for all workers": partial(work.run_on, 2, (0,)),
        "by name": partial(project.app.send_task, "project.work", (0,)),
        "chain": partial((add.s(1, 2) | add.s(3)).delay),
        "group": partial(group(add.s(1, 2), add.s(3, 4)).delay),
        "chord": partial(chord([add.s(1, 2), add.s(3, 4)], add.s(1)).delay),
    }


def away(server: RedisServer) -> Callable[[], None]:
    """Stop a server; what is returned starts it."""
    server.stop()
    return server.start


def silent(server: RedisServer) -> Callable[[], None]:
    """Let a server answer nobody."""
    server.freeze()
    return server.thaw


@promise("ledger-away")
@pytest.mark.parametrize("be", [away, silent])
def test_a_redis_that_comes_later_is_waited_for(
    project: Project, be: Callable[[RedisServer], Callable[[], None]]
) -> None:
    """A worker starts while Redis is away or silent, and works as soon as it answers."""
    come = be(project.redis)
    worker = project.start_worker("one", wait=False)
    # Then one that does not wait has ended.
    told = ("ledger_awaited", "worker_not_registered")
    wait_for(
        lambda: not worker.is_running or any(word in worker.log_text() for word in told),
        40,
        "it waits",
    )
    assert worker.is_running
    come()
    worker.wait_until_ready(60)
    assert project.send("work", 0.01).get(timeout=20) == "worked"
