"""A message that is sent with its record: both or neither, and once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_reliable.ledger.answers.tasks import Recorded
from celery_reliable.ledger.publications import sender_of
from celery_reliable.ledger.scripts import script
from celery_reliable.model import TaskRef
from tests.ledger.scene import Published, Scene, open_ledger
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

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


def test_what_ran_and_ended_before_the_reply_was_heard_is_not_sent_again(
    redis_server: RedisServer, proxy: RedisProxy
) -> None:
    ledger, client = open_ledger(proxy.url(), "own"), redis_server.client()
    near = Scene(open_ledger(redis_server.url(), "own"), client)
    near.start_worker("me")
    ledger.generation = near.publish("another").generation
    far = Scene(ledger, client)
    rule = proxy.drop_reply(script=script("record").sha, times=2)
    epoch = ledger.senders.new_epoch(0)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(far.record, TASK, epoch, queue=QUEUE)
        wait_for(lambda: sent(near), 10, "it is sent")
        near.ledger.settle(near.claim(Published(TASK, epoch, ledger.generation)))
        assert isinstance(asked.result(timeout=20), Recorded)
    assert rule.acted == 2
    assert near.ledger.find("task") is None
    assert len(sent(near)) == 1
    # The next of the same sender is another one.
    ledger.senders.answered(epoch)
    following = ledger.senders.new_epoch(0)
    assert sender_of(following)[0] == sender_of(epoch)[0]
    assert isinstance(far.record(TASK, following, queue=QUEUE), Recorded)
    assert len(sent(near)) == 2
    ledger.close()
    near.ledger.close()
    client.close()
