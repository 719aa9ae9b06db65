"""What a publisher is told, and what becomes of its task, while broker or ledger are away."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import psutil
import pytest
from celery import chord, group
from celery.app.amqp import AMQP
from kombu.exceptions import EncodeError, OperationalError

from celery_reliable import NotPublished, PublishUnknown
from celery_reliable.ledger.scripts import script
from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import DUE, LOCKS, RECORD, wait_until_settled
from tests.integration.project.named import add_tasks as add_named_tasks
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import stored, wait_for

# A publisher that gives up soon, so that its caller learns of it soon.
HASTY = {
    "broker_transport_options": {"socket_timeout": 2, "socket_connect_timeout": 1},
    "broker_connection_timeout": 1,
    "task_publish_retry": False,
}

#: What the documentation says that a caller is told.
TOLD = (NotPublished, PublishUnknown)

Make = Callable[[bool], Project]


@pytest.fixture
def make(project: Project, ledger_server: RedisServer, start_redis: StartRedis) -> Make:
    """Make the project, its broker, ledger and results apart from each other; with an outbox or
    not.
    """
    results = start_redis()

    def one(outbox: bool) -> Project:
        return project.with_settings(
            result_url=results.url(),
            reliable={**SOON, "REDIS_URL": ledger_server.url(), "OUTBOX": outbox},
            celery=HASTY,
        )

    return one


@promise("nothing-lost")
def test_with_an_outbox_a_task_is_sent_when_the_broker_is_back(
    make: Make, ledger_server: RedisServer, effects: Effects, redis_server: RedisServer
) -> None:
    apart = make(True)
    worker = apart.start_worker("one")
    redis_server.stop()
    began_at = effects.now()
    results = [apart.send("work", 0.01) for _ in range(2)]
    took = effects.now() - began_at
    with ledger_server.client() as client:
        assert all(client.exists(RECORD + result.id) for result in results)
    redis_server.start()
    back_at = effects.now()
    for result in results:
        assert stored(result, 40) == "worked"
    waited = effects.now() - back_at
    wait_until_settled(ledger_server, 15)
    # Nothing comes late: no second message is anywhere.
    later = apart.send("work", 0.01)
    assert stored(later, 20) == "worked"
    with redis_server.client() as client:
        assert client.llen("celery") == 0
    assert [len(effects.runs(result.id)) for result in results] == [1, 1]
    assert worker.is_running
    print(f"outbox: 2 published in {took:.1f} s, done {waited:.1f} s after the broker came back")


def test_without_an_outbox_the_caller_sees_the_error_and_nothing_is_sent_later(
    make: Make, ledger_server: RedisServer, effects: Effects, redis_server: RedisServer
) -> None:
    apart = make(False)
    redis_server.stop()
    with pytest.raises(NotPublished):
        apart.send("work", 0.01, task_id="not-sent")
    with ledger_server.client() as client:
        assert not client.keys(RECORD + "*")
        assert client.zcard(DUE) == 0
    redis_server.start()
    apart.start_worker("one")
    later = apart.send("work", 0.01)
    assert stored(later, 20) == "worked"
    wait_until_settled(ledger_server, 15)
    with redis_server.client() as client:
        assert client.llen("celery") == 0
    assert {run.task_id for run in effects.runs()} == {later.id}


@promise("ledger-away")
def test_when_the_record_cannot_be_withdrawn_the_error_says_that_it_is_unknown(
    make: Make, ledger_server: RedisServer, effects: Effects, redis_server: RedisServer
) -> None:
    apart = make(False)
    records = ledger_server.client()
    redis_server.freeze()

    def to_the_broker() -> int:
        found = psutil.Process().net_connections("tcp")
        return sum(bool(one.raddr) and one.raddr.port == redis_server.port for one in found)

    before = to_the_broker()
    with ThreadPoolExecutor(1) as publisher:
        sent = publisher.submit(apart.send, "work", 0.01, task_id="unknown")
        wait_for(lambda: records.exists(RECORD + "unknown"), 10, "it is recorded")
        # Who sends has heard that it is; the broker does not answer yet.
        wait_for(lambda: to_the_broker() > before, 10, "it is being sent")
        records.close()
        ledger_server.kill()
        with pytest.raises(PublishUnknown, match="may run or not") as caught:
            sent.result(60)
    assert caught.value.task_id == "unknown"
    redis_server.thaw()
    ledger_server.start()
    # The record was not withdrawn, so the task is still one that may not be lost.
    apart.start_worker("one")
    wait_for(lambda: effects.finished("unknown"), 40, "it runs")
    wait_until_settled(ledger_server, 15)
    assert len(effects.runs("unknown")) == 1


@promise("never-two")
def test_a_callback_that_is_recorded_is_not_recorded_again_as_it_could_not_be_sent(
    make: Make, ledger_server: RedisServer, effects: Effects, redis_server: RedisServer
) -> None:
    """Celery publishes a callback again after an error.  By then it may have run, and ended."""
    if not hasattr(AMQP, "_retry_publish"):
        pytest.skip("before Celery 5.7 a callback is published once")
    apart = make(False).with_settings(celery={**HASTY, "task_publish_retry": True})
    apart.start_worker("one")
    callback = apart.task("work").si(0.0).set(task_id="callback")
    first = apart.send("gate", "gate", link=callback)
    effects.run_of(first.id)
    records = ledger_server.client()
    redis_server.freeze()
    effects.open_gate("gate")
    wait_for(lambda: records.exists(RECORD + "callback"), 10, "it is recorded")
    # It is being sent, and cannot be withdrawn.
    records.config_set("min-replicas-to-write", 1)

    # The second time waits for nothing: it is known that the first one stays.
    assert stored(first, 30) == "gate"

    assert records.hget(RECORD + "callback", "state") == b"queued"
    redis_server.thaw()
    records.config_set("min-replicas-to-write", 0)
    wait_for(lambda: effects.finished("callback"), 40, "it runs")
    wait_until_settled(ledger_server, 15)
    later = apart.send("work", 0.0)
    assert stored(later, 20) == "worked"
    assert len(effects.runs("callback")) == 1
    records.close()


@promise("one-object")
def test_of_each_call_one_runs_whatever_is_lost_on_the_way(
    project: Project, proxy: RedisProxy
) -> None:
    project.start_worker("one")
    client = project.redis.client()
    for step, how in product(("record", "lock", "withdraw"), ("drop_request", "drop_reply")):
        lose = partial(getattr(proxy, how), script=script(step).sha)
        # Each time with connections of its own.
        publisher = project.with_settings(broker_url=proxy.url())
        if step == "record":
            rule = lose()
            result = publisher.send("work", 0.01)
            rule.wait()
            assert result.get(timeout=10) == "worked", how
            assert len(project.effects.runs(result.id)) == 1, how
            wait_for(lambda: not client.keys(RECORD + "*"), 10, "it is settled")
        rule, gate = lose(), f"{step} {how}"
        first, second = (publisher.send("unique", "object", [f"gate:{gate}"]) for _ in range(2))
        rule.wait()
        assert first.id == second.id, gate
        assert client.keys(RECORD + "*") == [f"{{reliable:0}}:task:{first.id}".encode()], gate
        project.effects.open_gate(gate)
        assert second.get(timeout=10) == "run 1", gate
        assert len(project.effects.runs(first.id)) == 1, gate
        wait_for(lambda: not client.keys(LOCKS), 10, "no object held")
        wait_for(lambda: not client.keys(RECORD + "*"), 10, "it is settled")


@promise("ledger-away")
def test_whoever_publishes_while_redis_is_away_is_told_so_by_every_door(
    project: Project, redis_server: RedisServer
) -> None:
    add_named_tasks(project.app)
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
