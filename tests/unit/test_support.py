"""The tests' own tools: a server that comes back with its data, a proxy that loses one reply."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support import redis_server as support
from tests.support.freezing import freeze
from tests.support.proxy import Action, RedisProxy
from tests.support.redis_server import RedisServer, free_port, redis_binary
from tests.support.waiting import wait_for

COUNT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def through(proxy: RedisProxy, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client by way of the proxy, which never retries, so that each loss is seen."""
    with redis.Redis(
        port=proxy.port, protocol=request.param, retry=Retry(NoBackoff(), 0), socket_timeout=5
    ) as client:
        yield client


def test_waiting_returns_the_answer_and_tells_what_it_waited_for() -> None:
    answers = iter([None, 0, "there"])
    assert wait_for(lambda: next(answers), 5, "an answer") == "there"
    with pytest.raises(AssertionError, match=r"vain for the moon; last seen: \[\]"):
        wait_for(list, 0.05, "the moon")


def test_a_missing_redis_binary_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(FileNotFoundError, match="/nowhere/redis-server"):
        redis_binary()


def test_a_port_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Somebody else may listen on one of them.
    monkeypatch.setattr(support, "PORTS", range(19000, 19020))
    given = [free_port() for _ in range(10)]
    assert len(set(given)) == len(given)
    monkeypatch.setattr(support, "PORTS", given)
    with pytest.raises(RuntimeError, match=r"no free loopback port left in \["):
        free_port()


def test_a_stopped_server_comes_back_on_its_port_with_its_data(redis_server: RedisServer) -> None:
    port, first = redis_server.port, redis_server.pid
    redis_server.client().set("kept", "yes")
    redis_server.stop()
    assert not redis_server.is_running
    with pytest.raises(redis.ConnectionError):
        redis_server.client().ping()
    redis_server.start()
    assert (redis_server.port, redis_server.client().get("kept")) == (port, b"yes")
    assert redis_server.pid != first


def test_a_killed_server_keeps_what_was_synced(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis({"appendfsync": "always"})
    server.client().set("kept", "yes")
    pid = server.pid
    server.kill()
    assert not psutil.pid_exists(pid)
    server.start()
    assert server.client().get("kept") == b"yes"


def test_options_reach_the_server(start_redis: Callable[..., RedisServer]) -> None:
    server = start_redis({"maxmemory-policy": "allkeys-lru", "maxmemory": "50mb"})
    assert server.client().config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}


def test_a_process_that_is_frozen_stands_still() -> None:
    # More than there are cores, so that it takes the one that is frozen a while to hear of it.
    compute = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(compute) for _ in range(2 * (os.cpu_count() or 1))]
    one = psutil.Process(busy[0].pid)
    try:
        for _ in range(30):
            freeze(one.pid)
            assert one.status() == psutil.STATUS_STOPPED
            one.resume()
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_a_frozen_server_answers_when_thawed(redis_server: RedisServer) -> None:
    client = redis_server.client(socket_timeout=0.2)
    client.set("before", "1")
    redis_server.freeze()
    with pytest.raises(redis.TimeoutError):
        client.get("before")
    redis_server.thaw()
    assert client.get("before") == b"1"


def test_everything_passes_where_no_rule_says_otherwise(through: redis.Redis) -> None:
    pipeline = through.pipeline(transaction=True)
    pipeline.hset("hash", mapping={"a": "1", "b": "x" * 200_000})
    pipeline.hgetall("hash")
    pipeline.zadd("sorted", {"m": 1.5})
    pipeline.zrange("sorted", 0, -1, withscores=True)
    assert pipeline.execute()[1][b"b"] == b"x" * 200_000
    unwrapped = through.pipeline(transaction=False)
    for number in range(500):
        unwrapped.rpush("list", number)
    assert unwrapped.execute() == list(range(1, 501))
    assert through.blpop(["nothing"], timeout=0.05) is None
    with pytest.raises(redis.ResponseError):
        through.incr("list")
    heard: Any = through.pubsub()  # type: ignore[no-untyped-call]
    heard.subscribe("news")
    wait_for(lambda: heard.get_message(timeout=0.1), 5, "the subscription")
    through.publish("news", "hello")
    message = wait_for(lambda: heard.get_message(timeout=0.1), 5, "the message")
    assert message["data"] == b"hello"
    heard.close()


def test_exactly_the_nth_reply_is_lost_and_its_command_executed(
    redis_server: RedisServer, proxy: RedisProxy, through: redis.Redis
) -> None:
    script = through.register_script(COUNT)
    rule = proxy.drop_reply(script=script.sha, containing="counted", nth=2)
    assert script(keys=["counted"]) == 1
    assert script(keys=["other"]) == 1
    with pytest.raises(redis.ConnectionError):
        script(keys=["counted"])
    assert redis_server.client().get("counted") == b"2"
    assert script(keys=["counted"]) == 3
    # The first call of all was answered NOSCRIPT: it executed nothing and is not counted.
    assert (rule.matched, rule.acted) == (3, 1)
    assert [seen.outcome for seen in proxy.seen].count(Action.DROP_REPLY) == 1


def test_a_lost_request_is_not_executed(
    redis_server: RedisServer, proxy: RedisProxy, through: redis.Redis
) -> None:
    rule = proxy.drop_request(script=hashlib.sha1(COUNT.encode()).hexdigest(), times=2)
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            through.eval(COUNT, 1, "counted")
    rule.wait(acted=2)
    assert redis_server.client().get("counted") is None
    assert through.eval(COUNT, 1, "counted") == 1


def test_a_transaction_is_lost_as_a_whole(
    redis_server: RedisServer, proxy: RedisProxy, through: redis.Redis
) -> None:
    def transact() -> None:
        pipeline = through.pipeline()
        pipeline.incr("one")
        pipeline.incr("two")
        pipeline.execute()

    proxy.drop_request("INCRBY", containing="two")
    with pytest.raises(redis.ConnectionError):
        transact()
    assert redis_server.client().mget("one", "two") == [None, None]
    proxy.drop_reply("INCRBY", containing="two")
    with pytest.raises(redis.ConnectionError):
        transact()
    assert redis_server.client().mget("one", "two") == [b"1", b"1"]
    transact()
    assert redis_server.client().mget("one", "two") == [b"2", b"2"]


def test_retried_by_redis_py_a_lost_reply_means_a_command_executed_twice(
    proxy: RedisProxy,
) -> None:
    rule = proxy.drop_reply("INCRBY")
    # As redis-py 6 and later retry unasked.
    retrying = redis.Redis(
        port=proxy.port, retry=Retry(NoBackoff(), 3), retry_on_error=[redis.ConnectionError]
    )
    with retrying as client:
        assert client.incr("counted") == 2
    assert rule.acted == 1


def test_the_network_goes_and_comes_back(proxy: RedisProxy, through: redis.Redis) -> None:
    through.set("here", "1")
    proxy.sever()
    for _ in range(2):
        with pytest.raises(redis.ConnectionError):
            through.get("here")
    proxy.mend()
    assert through.get("here") == b"1"
    proxy.stall()
    slow = redis.Redis(port=proxy.port, socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
    with pytest.raises(redis.TimeoutError):
        slow.get("here")
    proxy.mend()
    assert slow.get("here") == b"1"
    slow.close()


def test_a_closed_client_is_gone_for_the_server_too(
    redis_server: RedisServer, proxy: RedisProxy
) -> None:
    client = redis.Redis(port=proxy.port, client_name="brief")
    client.ping()
    direct = redis_server.client()
    assert "brief" in [each["name"] for each in direct.client_list()]
    client.close()
    wait_for(lambda: "brief" not in [each["name"] for each in direct.client_list()], 5, "its end")
