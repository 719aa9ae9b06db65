"""A worker's unacked hash: what is taken from the queues is in it, whatever happens in between."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from kombu import Connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_reliable.broker.deliveries import WorkerHooks
from celery_reliable.broker.worker_unacked import WorkerUnacked
from celery_reliable.redis_io.connection import Line
from tests.support.proxy import RedisProxy

QUEUES = ["one", "two"]
LISTS = ["one", "two", "one:3", "two:3"]


def message(name: str) -> bytes:
    """A message as kombu leaves it in a list."""
    told = {"exchange": "", "routing_key": "one"}
    properties = {"delivery_tag": f"tag of {name}", "delivery_info": told}
    return json.dumps({"body": "", "headers": {"id": name}, "properties": properties}).encode()


def names(found: list[Any]) -> list[str]:
    """The names of messages."""
    return [json.loads(one.raw)["headers"]["id"] for one in found]


class Queues:
    """As much of a channel as an unacked hash asks for."""

    def _get_message_priority(self, payload: dict[str, Any], reverse: bool) -> int:
        return int(payload["properties"].get("priority", 0))

    def _q_for_pri(self, queue: str, priority: int) -> str:
        return f"{queue}:{priority}" if priority else queue


def unacked_on(client: redis.Redis, prefix: str = "") -> WorkerUnacked:
    """An unacked hash on the server of a client."""
    return WorkerUnacked("unacked:me", client.connection_pool, prefix)


def test_the_first_priority_goes_first_and_queues_take_turns(shared_redis: redis.Redis) -> None:
    for key, item in [("one:3", "low"), ("one", "a1"), ("one", "a2"), ("two", "b1")]:
        shared_redis.lpush(key, message(item))
    unacked = unacked_on(shared_redis)
    taken = unacked.take(QUEUES, LISTS, 10)
    assert names(taken.deliveries) == ["a1", "b1", "a2", "low"]
    assert [one.queue for one in taken.deliveries] == ["one", "two", "one", "one"]
    assert taken.n_waiting == 0
    assert sorted(names(unacked.each_entry())) == ["a1", "a2", "b1", "low"]
    assert {one.tag for one in unacked.each_entry()} == {one.tag for one in taken.deliveries}


@pytest.mark.parametrize(("plenty", "taken"), [(4, 3), (5, 1)])
def test_more_is_taken_only_where_plenty_remain(
    shared_redis: redis.Redis, plenty: int, taken: int
) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(6)])
    shared_redis.lpush("two:3", message("low"))
    found = unacked_on(shared_redis).take(QUEUES, LISTS, 1, most=3, plenty=plenty)
    assert names(found.deliveries) == [str(n) for n in range(taken)]
    assert found.n_waiting == 7 - taken


def test_what_is_acknowledged_goes_with_the_next_take(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(4)])
    unacked = unacked_on(shared_redis)
    first = unacked.take(QUEUES, LISTS, 3).deliveries
    for delivery in first[:2]:
        unacked.remove_soon(delivery.tag)
    assert len(unacked) == 3
    unacked.take(QUEUES, LISTS, 1, ("one", "one", message("popped")))
    assert sorted(names(unacked.each_entry())) == ["2", "3", "popped"]
    unacked.remove_soon(first[2].tag)
    unacked.catch_up()
    assert sorted(names(unacked.each_entry())) == ["3", "popped"]


@pytest.mark.parametrize("is_filed", [False, True])
def test_what_may_not_have_been_filed_is_not_lost(
    shared_redis: redis.Redis, proxy: RedisProxy, is_filed: bool
) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        unacked = unacked_on(client)
        unacked.take(QUEUES, LISTS, 0)
        lose = proxy.drop_reply if is_filed else proxy.drop_request
        lose("EVALSHA")
        with pytest.raises(redis.ConnectionError):
            unacked.take(QUEUES, LISTS, 0, ("one", "one", message("popped")))
        for _ in range(2):
            unacked.catch_up()
        assert client.llen("one") == (0 if is_filed else 1)
        assert len(unacked) == (1 if is_filed else 0)
        # Nobody was delivered it: it goes back on the second sighting.
        for _ in range(2):
            unacked.reconcile(Queues(), held=())
        assert client.llen("one") == 1
        assert len(unacked) == 0


def test_what_is_made_up_for_in_vain_is_made_up_for_later(proxy: RedisProxy) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        client.lpush("one", message("acknowledged"))
        unacked = unacked_on(client)
        (delivery,) = unacked.take(QUEUES, LISTS, 1).deliveries
        unacked.remove_soon(delivery.tag)
        proxy.drop_request("EVALSHA")
        with pytest.raises(redis.ConnectionError):
            unacked.take(QUEUES, LISTS, 0, ("one", "one", message("popped")))

        for lost in ("HDEL", "EVALSHA"):
            rule = proxy.drop_request(lost)
            unacked.catch_up()
            assert rule.acted == 1
        unacked.catch_up()

        assert len(unacked) == 0
        assert client.llen("one") == 1


@pytest.mark.parametrize("queue", ["two\nlines", "a\\nb", "a\\\\\n", "\n", "ü \t", "plain"])
def test_a_queue_may_have_any_name(shared_redis: redis.Redis, queue: str) -> None:
    shared_redis.lpush(queue, message("behind"))
    unacked = unacked_on(shared_redis)
    taken = unacked.take([queue], [queue], 1, (queue, queue, message("popped")))
    assert [one.queue for one in taken.deliveries] == [queue, queue]
    entries = list(unacked.each_entry())
    assert {entry.queue for entry in entries} == {queue}
    assert sorted(names(entries)) == ["behind", "popped"]
    for entry in entries:
        unacked.give_back(Queues(), entry.tag, is_last=False)
    assert shared_redis.llen(queue) == 2


def test_the_list_of_unacked_hashes_forgets_empty_ones_alone(shared_redis: redis.Redis) -> None:
    unacked = unacked_on(shared_redis)
    unacked.open("ours")
    unacked.take(QUEUES, LISTS, 0, ("one", "one", message("it")))
    unacked.strike_off("ours")
    assert shared_redis.smembers("celery-reliable.unacked:ours") == {b"unacked:me"}
    (entry,) = unacked.each_entry()
    unacked.discard(entry.tag)
    unacked.strike_off("ours")
    assert not shared_redis.exists("celery-reliable.unacked:ours")


def test_what_a_take_files_that_comes_late_is_found(
    shared_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    unacked = unacked_on(shared_redis)
    unacked.open("ours")
    sent: list[tuple[Any, ...]] = []
    ask = Line.ask

    def note(line: Line, *commands: Any) -> list[Any]:
        sent.extend(commands)
        return ask(line, *commands)

    monkeypatch.setattr(Line, "ask", note)
    (delivery,) = unacked.take(QUEUES, LISTS, 0, ("one", "one", message("popped"))).deliveries
    unacked.discard(delivery.tag)
    unacked.strike_off("ours")

    shared_redis.execute_command(*sent[-1])
    assert len(unacked) == 1
    assert shared_redis.smembers("celery-reliable.unacked:ours") == {b"unacked:me"}


def test_what_was_not_begun_goes_back_as_it_was_and_in_its_order(shared_redis: redis.Redis) -> None:
    low = message("low").replace(b'"one"}', b'"one"}, "priority": 3')
    for key, items in (("one", ["a", "b"]), ("two", ["c"])):
        shared_redis.lpush(f"app1:{key}", *map(message, items))
    shared_redis.lpush("app1:one:3", low)
    unacked = unacked_on(shared_redis, "app1:")
    taken = unacked.take(QUEUES, LISTS, 10).deliveries
    tags = {name: one.tag for name, one in zip(names(taken), taken, strict=True)}
    shared_redis.lpush("app1:one", message("later"))
    lists = {"a": "one", "b": "one", "c": "two", "low": "one:3"}
    messages = [(tags[name], lists[name]) for name in tags]
    unacked.remove(tags["c"])

    moved = dict(zip(tags, unacked.requeue(messages), strict=True))

    # What was acknowledged meanwhile is nowhere.
    assert moved == {"a": True, "b": True, "low": True, "c": False}
    assert shared_redis.lrange("app1:one", 0, -1) == [*map(message, ("later", "b", "a"))]
    assert shared_redis.lrange("app1:one:3", 0, -1) == [low]
    assert not shared_redis.exists("app1:two", "app1:unacked:me")
    # A copy of the call that comes late finds nothing.
    assert unacked.requeue(messages) == [False] * 4
    assert shared_redis.llen("app1:one") == 3


@pytest.mark.parametrize("is_executed", [False, True])
def test_a_give_back_that_is_cut_leaves_each_message_in_one_place(
    proxy: RedisProxy, is_executed: bool
) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        unacked = unacked_on(client)
        client.lpush("one", message("before"), message("it"))
        first, second = unacked.take(["one"], ["one"], 2).deliveries
        # From now on the server knows the script.
        assert unacked.requeue([(first.tag, "one")]) == [True]
        cut = proxy.drop_reply if is_executed else proxy.drop_request
        cut("EVALSHA")
        # In either case the worker is to let go of it.
        assert unacked.requeue([(second.tag, "one")]) == [True]
        assert client.llen("one") == 1 + is_executed
        assert len(unacked) == 1 - is_executed


def test_a_worker_that_ends_gives_back_when_nobody_holds_a_claim_any_more(
    shared_redis: redis.Redis,
) -> None:
    port = shared_redis.connection_pool.connection_kwargs["port"]
    n_waiting: list[int] = []
    transport = "celery_reliable.transport:Transport"
    with Connection(f"redis://127.0.0.1:{port}", transport=transport) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        channel.basic_consume("one", False, lambda message: None, "tag")
        unacked = channel.reliable_unacked = WorkerUnacked.opened("unacked:it", channel)
        channel._take(("one", "one", message("it")))
        unacked.is_leaving = True
        # Whoever takes it before that is told that somebody runs it, and drops it.
        unacked.worker = WorkerHooks(
            before_leaving=lambda: n_waiting.append(shared_redis.llen("one"))
        )
    assert n_waiting == [0]
    assert shared_redis.llen("one") == 1
