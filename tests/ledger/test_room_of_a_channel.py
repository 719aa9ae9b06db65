"""A worker's channel and its unacked hash: what is claimed as it is filed, and given back as it
ends.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from kombu import Connection

from celery_reliable.broker.deliveries import WorkerHooks
from tests.support.proxy import RedisProxy

TRANSPORT = "celery_reliable.transport:Transport"


def sendable(name: str) -> bytes:
    """A message as kombu leaves it in a list, with all that a consumer wants to see."""
    told = {"exchange": "", "routing_key": "one"}
    properties = {"delivery_tag": f"tag of {name}", "delivery_info": told}
    return json.dumps({"body": "", "headers": {"id": name}, "properties": properties}).encode()


class Claims:
    """Tells which messages would have been claimed as they were filed."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, payload: Any) -> None:
        self.asked.append(payload["headers"]["id"])


@pytest.mark.parametrize(
    ("is_consumed", "idle", "asked"), [(True, 1, ["it"]), (False, 1, []), (True, 0, [])]
)
def test_only_what_begins_at_once_is_claimed_as_it_is_filed(
    shared_redis: redis.Redis, is_consumed: bool, idle: int, asked: list[str]
) -> None:
    port = shared_redis.connection_pool.connection_kwargs["port"]
    with Connection(f"redis://127.0.0.1:{port}", transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        delivered: list[Any] = []
        channel.basic_consume("one", False, delivered.append, "tag")
        channel.reliable_unacked = "unacked:it"
        unacked = channel.qos.unacked
        claims = Claims()
        unacked.worker = WorkerHooks(idle_slots=lambda: idle, early=claims)
        if not is_consumed:
            channel.basic_cancel("tag")
        channel._take(("one", "one", sendable("it")))
        assert (claims.asked, len(delivered)) == (asked, int(is_consumed))
        # What nobody consumes any more goes back.
        assert shared_redis.llen("one") == int(not is_consumed)
        unacked.is_leaving = True


def test_a_worker_that_ends_gives_back_when_nobody_holds_a_claim_any_more(
    shared_redis: redis.Redis,
) -> None:
    port = shared_redis.connection_pool.connection_kwargs["port"]
    n_waiting: list[int] = []
    with Connection(f"redis://127.0.0.1:{port}", transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        channel.basic_consume("one", False, lambda message: None, "tag")
        channel.reliable_unacked = "unacked:it"
        unacked = channel.qos.unacked
        channel._take(("one", "one", sendable("it")))
        unacked.is_leaving = True
        # Whoever takes it before that is told that somebody runs it, and drops it.
        unacked.worker = WorkerHooks(
            before_leaving=lambda: n_waiting.append(shared_redis.llen("one"))
        )
    assert n_waiting == [0]
    assert shared_redis.llen("one") == 1


def test_what_could_not_be_given_back_is_given_back_later(proxy: RedisProxy) -> None:
    with Connection(proxy.url(), transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        delivered: list[Any] = []
        channel.basic_consume("one", False, delivered.append, "tag")
        channel.reliable_unacked = "unacked:severed"
        unacked = channel.qos.unacked
        channel._take(("one", "one", sendable("it")))
        (message,) = delivered
        proxy.sever()
        # Celery goes on as if it had been given back.
        with pytest.raises(tuple(connection.connection_errors)):
            message.reject(requeue=True)
        proxy.mend()

        given = [
            unacked.reconcile(channel, held=set(channel.qos._delivered) - set(channel.qos._dirty))
            for _ in range(2)
        ]
        assert (sum(given), len(unacked)) == (1, 0)
        unacked.is_leaving = True


@pytest.mark.parametrize(("was_handed", "n_more"), [(True, 0), (False, 0), (True, 1)])
def test_a_process_begins_what_ended_the_wait_before_more_is_waited_for(
    shared_redis: redis.Redis, was_handed: bool, n_more: int
) -> None:
    port = shared_redis.connection_pool.connection_kwargs["port"]
    with Connection(f"redis://127.0.0.1:{port}", transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        delivered: list[Any] = []
        channel.basic_consume("one", False, delivered.append, "tag")
        channel.reliable_unacked = "unacked:it"
        unacked = channel.qos.unacked
        unacked.worker = WorkerHooks(idle_slots=lambda: 1, hand_over=lambda: was_handed)

        def turn() -> None:
            # As kombu does in each turn of the main loop.
            connection.transport.cycle._register_BRPOP(channel)

        turn()
        assert channel.is_waiting
        for number in range(1 + n_more):
            shared_redis.lpush("one", sendable(str(number)))
        channel.end_of_wait()
        assert len(delivered) == 1
        turn()
        # What is there already is fetched, whoever begins.
        assert len(delivered) == 1 + n_more
        assert channel.is_waiting is not (was_handed and not n_more)
        turn()
        assert channel.is_waiting
        unacked.is_leaving = True
