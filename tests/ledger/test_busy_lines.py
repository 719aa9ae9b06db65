"""A reply is waited for without a sleep where whoever asks wants that, and only then."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from celery_reliable.compat.redis import wait_busily
from celery_reliable.redis_io import Line
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

#: Is answered after a tenth of a second, or a little more.
SLOW = ("BLPOP", "nothing", "0.1")
TIMES = 5


@pytest.fixture
def line(redis_server: RedisServer) -> Iterator[Line]:
    pool = redis.ConnectionPool.from_url(redis_server.url())
    found = Line(pool)
    found.ask(("PING",))
    yield found
    found.close()
    pool.disconnect()


def sleeps(line: Line, busy_seconds: float) -> int:
    """Return how often this thread was put to sleep for a reply."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(TIMES):
        assert line.ask(SLOW, busy_seconds=busy_seconds) == [None]
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before


def test_nobody_sleeps_who_waits_busily(line: Line) -> None:
    assert sleeps(line, 0) >= TIMES
    assert sleeps(line, 30) < TIMES


def test_who_waits_longer_sleeps(line: Line) -> None:
    """It is the reply that ends the wait, however long that takes."""
    assert sleeps(line, 1e-6) >= TIMES


def test_all_replies_come_in_order(line: Line) -> None:
    assert line.ask(SLOW, ("ECHO", "a"), SLOW, ("ECHO", "b"), busy_seconds=30) == [
        None,
        b"a",
        None,
        b"b",
    ]


def test_a_connection_that_ends_is_told(redis_server: RedisServer, line: Line) -> None:
    def end() -> None:
        with redis_server.client() as admin:
            (one,) = wait_for(lambda: blocked(admin), 10, "the line waits")
            admin.execute_command("CLIENT", "KILL", "ID", one)

    def blocked(admin: Any) -> list[str]:
        return [one["id"] for one in admin.client_list() if one["cmd"] == "blpop"]

    with ThreadPoolExecutor(1) as other:
        ended = other.submit(end)
        with pytest.raises(redis.ConnectionError):
            line.ask(("BLPOP", "nothing", 0), busy_seconds=30)
        ended.result()
    assert line.ask(("PING",), busy_seconds=30) == [b"PONG"]


@pytest.mark.parametrize("is_connected", [True, False])
def test_what_is_not_there_is_waited_for_that_long(
    redis_server: RedisServer, is_connected: bool
) -> None:
    pool = redis.ConnectionPool.from_url(redis_server.url())
    connection: Any = pool.make_connection()
    if is_connected:
        connection.connect()
    began = time.perf_counter()
    wait_busily(connection, 0.05)
    assert (time.perf_counter() - began >= 0.05) is is_connected
    connection.disconnect()


def test_the_reply_is_left_where_it_is(redis_server: RedisServer) -> None:
    pool = redis.ConnectionPool.from_url(redis_server.url())
    connection: Any = pool.make_connection()
    connection.connect()
    connection.send_command("PING")
    wait_busily(connection, 30)
    assert connection.can_read(timeout=0)
    wait_for(lambda: connection.read_response() in (b"PONG", "PONG"), 5, "it is read")
    connection.disconnect()
