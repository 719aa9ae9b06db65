"""The tests' own proxy: it loses one reply, one request, or the network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.proxy import RedisProxy
from tests.support.proxy_rules import Action
from tests.support.redis_server import RedisServer

COUNT = "return redis.call('INCR', KEYS[1])"


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def through(proxy: RedisProxy, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """A client by way of the proxy, which never retries, so that each loss is seen."""
    with redis.Redis(
        port=proxy.port, protocol=request.param, retry=Retry(NoBackoff(), 0), socket_timeout=5
    ) as client:
        yield client


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
