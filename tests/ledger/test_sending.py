"""A message that is sent with its record: both or neither, and once."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.answers.tasks import Recorded
from celery_reliable.ledger.scripts import script
from celery_reliable.model import TaskRef
from tests.ledger.scene import Scene, open_ledger
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer

TASK = TaskRef("task", "app.work")
QUEUE = "celery"


def sent(scene: Scene) -> list[bytes]:
    """What is in the queue."""
    found: list[bytes] = scene.client.lrange(QUEUE, 0, -1)
    return found


@pytest.mark.parametrize("what", ["request", "reply"])
def test_it_is_sent_once_whatever_is_lost(
    redis_server: RedisServer, proxy: RedisProxy, what: str
) -> None:
    ledger, client = open_ledger(proxy.url(), "own"), redis_server.client()
    scene = Scene(ledger, client)
    scene.record(TaskRef("another", "app.work"), "0-0")
    drop = proxy.drop_request if what == "request" else proxy.drop_reply
    rule = drop(script=script("record").sha, times=2)

    answer = scene.record(TASK, "0-1", queue=QUEUE)

    assert rule.acted == 2
    assert isinstance(answer, Recorded)
    assert sent(scene) == [scene.record_of().message.encode()]
    ledger.close()
    client.close()
