"""The tests' own proxy: it loses one reply, one request, or the network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.proxy import RedisProxy
from tests.support.proxy_rules import Action
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

COUNT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def through(proxy: RedisProxy, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client by way of the proxy, which never retries, so that each loss is seen."""
    with redis.Redis(
        port=proxy.port, protocol=request.param, retry=Retry(NoBackoff(), 0), socket_timeout=5
    ) as client:
        yield client


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


def test_retried_by_redis_py_a_lost_reply_means_a_command_executed_twice(proxy: RedisProxy) -> None:
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
