"""What a publisher is told, and what becomes of its task, while broker or ledger are away."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from celery.app.amqp import AMQP

from celery_reliable import NotPublished, PublishUnknown
from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import DUE, RECORD, assert_each_ran_once, wait_until_settled
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import stored, wait_for

# A publisher that gives up soon, so that its caller learns of it soon.
HASTY = {
    "broker_transport_options": {"socket_timeout": 2, "socket_connect_timeout": 1},
    "broker_connection_timeout": 1,
    "task_publish_retry": False,
}

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
def test_what_is_published_while_the_broker_is_away_is_sent_later_or_never(
    make: Make, ledger_server: RedisServer, effects: Effects, redis_server: RedisServer
) -> None:
    """With an outbox it is sent when the broker is back; else the caller sees the error."""
    apart, told = make(True), make(False)
    worker = apart.start_worker("one")
    redis_server.stop()
    began_at = effects.now()
    results = [apart.send("work", 0.01) for _ in range(2)]
    took = effects.now() - began_at
    with pytest.raises(NotPublished):
        told.send("work", 0.01, task_id="not-sent")
    with ledger_server.client() as client:
        records = {(RECORD + result.id).encode() for result in results}
        assert set(client.keys(RECORD + "*")) == records
        assert client.zscore(DUE, "not-sent") is None
    redis_server.start()
    back_at = effects.now()
    for result in results:
        assert stored(result, 40) == "worked"
    waited = effects.now() - back_at
    wait_until_settled(ledger_server, 15)
    # Nothing comes late: no second message is anywhere.
    later = told.send("work", 0.01)
    assert stored(later, 20) == "worked"
    wait_until_settled(ledger_server, 15)
    with redis_server.client() as client:
        assert client.llen("celery") == 0
    assert_each_ran_once(effects, [later.id, *(result.id for result in results)])
    assert not effects.runs("not-sent")
    assert worker.is_running
    print(f"outbox: 2 published in {took:.1f} s, done {waited:.1f} s after the broker came back")


@pytest.mark.full
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


@pytest.mark.full
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
