"""A worker's channel and its unacked hash: what is claimed as it is filed, and given back as it
ends.
"""

from __future__ import annotations

import json

import redis
from kombu import Connection

from celery_reliable.broker.deliveries import WorkerHooks
from celery_reliable.broker.worker_unacked import WorkerUnacked

TRANSPORT = "celery_reliable.transport:Transport"


def sendable(name: str) -> bytes:
    """A message as kombu leaves it in a list, with all that a consumer wants to see."""
    told = {"exchange": "", "routing_key": "one"}
    properties = {"delivery_tag": f"tag of {name}", "delivery_info": told}
    return json.dumps({"body": "", "headers": {"id": name}, "properties": properties}).encode()


def test_a_worker_that_ends_gives_back_when_nobody_holds_a_claim_any_more(
    shared_redis: redis.Redis,
) -> None:
    port = shared_redis.connection_pool.connection_kwargs["port"]
    n_waiting: list[int] = []
    with Connection(f"redis://127.0.0.1:{port}", transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        channel.basic_consume("one", False, lambda message: None, "tag")
        unacked = channel.reliable_unacked = WorkerUnacked.opened("unacked:it", channel)
        channel._take(("one", "one", sendable("it")))
        unacked.is_leaving = True
        # Whoever takes it before that is told that somebody runs it, and drops it.
        unacked.worker = WorkerHooks(
            before_leaving=lambda: n_waiting.append(shared_redis.llen("one"))
        )
    assert n_waiting == [0]
    assert shared_redis.llen("one") == 1
