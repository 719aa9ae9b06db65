"""Whether the server has closed an idle connection is seen before something is asked over it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from celery_reliable.redis_io import Line
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

CLOSING = "client", "kill", "type", "normal", "skipme", "yes"


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def pool(redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[Any]:
    found = redis.ConnectionPool.from_url(redis_server.url(), protocol=request.param)
    yield found
    found.disconnect()


def test_over_a_connection_that_was_closed_nothing_is_asked(
    redis_server: RedisServer, pool: Any
) -> None:
    line = Line(pool)
    for number in range(1, 4):
        # Whoever were told of a lost connection would not know whether it was counted.
        assert line.ask(("INCR", "calls"), ("GET", "calls"))[0] == number
        with redis_server.client() as admin:
            admin.execute_command(*CLOSING)
            wait_for(lambda a=admin: len(a.client_list()) == 1, 5, "they are closed")
    line.close()
