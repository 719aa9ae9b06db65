"""A namespace of its own for each test, on a server that all of them share."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
import redis

from tests.ledger.scene import RestartableScene, Scene, open_ledger
from tests.support.acl import granted
from tests.support.redis_server import RedisServer


@pytest.fixture
def ledger_url(shared_redis: redis.Redis) -> str:
    """Where the shared server's database 0 is, for a user who may do what the README says."""
    return granted(shared_redis, namespace="*")


@pytest.fixture
def scene(shared_redis: redis.Redis, ledger_url: str) -> Iterator[Scene]:
    """A ledger of this test's own namespace, with the workers "me" and "other" alive."""
    ledger = open_ledger(ledger_url, namespace=f"n{uuid4().hex[:8]}")
    found = Scene(ledger, shared_redis)
    found.start_worker("me")
    found.start_worker("other")
    yield found
    ledger.close()


@pytest.fixture
def restartable(redis_server: RedisServer) -> Iterator[RestartableScene]:
    """As `scene`, on `redis_server`, which the test may stop and start again."""
    ledger = open_ledger(redis_server.url(), namespace="own")
    found = RestartableScene(ledger, redis_server)
    found.start_worker("me")
    found.start_worker("other")
    yield found
    ledger.close()
    found.client.close()
