"""What a publisher is told, and what becomes of tasks, while broker, ledger or results are away."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from celery import chord, uuid
from celery.app.amqp import AMQP
from celery.backends import redis as redis_backend

from celery_reliable import NotPublished, PublishUnknown
from tests.conftest import StartRedis
from tests.integration.conftest import SOON, Project
from tests.integration.figures import DUE, RECORD, assert_each_ran_once, wait_until_settled
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
    # While the disk is busy "everysec" writes up to two seconds later than it answers.
    records.config_set("appendfsync", "always")
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
    first = apart.begin("gate", "gate", link=callback)
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


@pytest.mark.full
def test_who_is_stopped_after_its_success_was_stored_does_not_run_again(
    project: Project, results: RedisServer
) -> None:
    """A chord's member: its chord is told after that."""
    with RedisProxy(results.port) as proxy:
        behind = project.with_settings(
            result_url=proxy.url(),
            reliable=SOON,
            celery={"worker_cancel_long_running_tasks_on_connection_loss": True},
        )
        one = behind.start_worker("one", concurrency=1)
        # Nobody can count in a chord.
        untold = proxy.drop_request("EVALSHA", times=None)
        body = chord([behind.task("add").s(1, 1)])(behind.task("total").s())
        (member,) = body.parent.results
        untold.wait()
        assert member.state == "SUCCESS"
        one.signal_main(signal.SIGQUIT)
        one.wait_until_ended()
        proxy.remove(untold)
        behind.start_worker("two", concurrency=1)
        assert stored(body, 30) == 2
    runs = project.effects.runs
    assert [len(runs(each.id)) for each in (member, body)] == [1, 1]


@pytest.mark.full
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


@pytest.mark.full
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
