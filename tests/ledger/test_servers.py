"""The tests' own servers: one comes back with its data."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest
import redis

from tests.support.redis_server import RedisServer


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


def test_a_frozen_server_answers_when_thawed(redis_server: RedisServer) -> None:
    client = redis_server.client(socket_timeout=0.2)
    client.set("before", "1")
    redis_server.freeze()
    with pytest.raises(redis.TimeoutError):
        client.get("before")
    redis_server.thaw()
    assert client.get("before") == b"1"
