"""A worker's unacked hash: what is taken from the queues is in it, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from kombu import Connection
from kombu.transport.redis import Empty
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_reliable.broker import take_text
from celery_reliable.broker.deliveries import WorkerHooks
from celery_reliable.broker.worker_unacked import WorkerUnacked
from celery_reliable.ledger import TakeSteps
from celery_reliable.redis_io import Line
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


def steps(queues: Any) -> TakeSteps:
    """What takes from these queues, with the ledger on another server."""
    keys = [queues.unacked, queues.listed, *["none"] * 5, *queues.lists]
    return TakeSteps(take_text(), keys, [queues.name, "", "", 1, 1000, "", 100_000], queues.names)


def unacked_on(client: redis.Redis, prefix: str = "") -> WorkerUnacked:
    """An unacked hash on the server of a client."""
    unacked = WorkerUnacked("unacked:me", client.connection_pool, prefix)
    unacked.worker = WorkerHooks(steps=steps)
    return unacked


def taken_by(unacked: WorkerUnacked, n: int = 1) -> list[Any]:
    """What is taken from the queues, the first first."""
    return unacked.take([unacked.queues(QUEUES, LISTS)] * n)


def test_the_first_priority_goes_first_and_no_more_is_taken_than_is_asked_for(
    shared_redis: redis.Redis,
) -> None:
    for key, item in [("one:3", "low"), ("one", "a1"), ("one", "a2"), ("two", "b1")]:
        shared_redis.lpush(key, message(item))
    unacked = unacked_on(shared_redis)
    taken = taken_by(unacked, 3)
    assert names(taken) == ["a1", "a2", "b1"]
    assert [one.queue for one in taken] == ["one", "one", "two"]
    assert {one.tag for one in unacked.each_entry()} == {one.tag for one in taken}
    assert [one.claim for one in taken] == [None] * 3
    assert names(taken_by(unacked, 3)) == ["low"]


def test_queues_take_turns(shared_redis: redis.Redis) -> None:
    taken = []
    with connected(shared_redis, "one", "two") as channel:
        for key in ("one", "one", "two", "two"):
            shared_redis.lpush(key, message(key))
        channel.reliable_unacked.worker = WorkerHooks(
            steps=steps, is_held_back=lambda queue: bool(taken.append(queue))
        )
        while channel._take(2):
            pass
    # Each delivery asks once.
    assert sorted(taken[:2]) == sorted(taken[2:]) == ["one", "two"]


def test_what_is_acknowledged_goes_with_the_next_take(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(4)])
    unacked = unacked_on(shared_redis)
    first = taken_by(unacked, 3)
    for delivery in first[:2]:
        unacked.remove_soon(delivery.tag)
    assert len(unacked) == 3
    taken_by(unacked)
    assert sorted(names(unacked.each_entry())) == ["2", "3"]
    unacked.remove_soon(first[2].tag)
    unacked.catch_up()
    assert names(unacked.each_entry()) == ["3"]


@pytest.mark.parametrize("is_filed", [False, True])
def test_a_take_that_is_cut_leaves_each_message_in_one_place(
    shared_redis: redis.Redis, proxy: RedisProxy, is_filed: bool
) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        unacked = unacked_on(client)
        # From now on the server knows the script.
        taken_by(unacked)
        client.lpush("one", message("it"))
        lose = proxy.drop_reply if is_filed else proxy.drop_request
        lose("EVALSHA")
        with pytest.raises(redis.ConnectionError):
            taken_by(unacked)
        assert client.llen("one") == (0 if is_filed else 1)
        assert len(unacked) == (1 if is_filed else 0)
        # Nobody was delivered it: it goes back on the second sighting.
        for _ in range(2):
            unacked.reconcile(Queues(), held=())
        assert client.llen("one") == 1
        assert len(unacked) == 0


def test_what_is_acknowledged_in_vain_is_removed_later(proxy: RedisProxy) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        client.lpush("one", message("acknowledged"))
        unacked = unacked_on(client)
        (delivery,) = taken_by(unacked)
        unacked.remove_soon(delivery.tag)
        proxy.drop_request("EVALSHA")
        with pytest.raises(redis.ConnectionError):
            taken_by(unacked)

        rule = proxy.drop_request("HDEL")
        unacked.catch_up()
        assert (rule.acted, len(unacked)) == (1, 1)
        unacked.catch_up()

        assert len(unacked) == 0


def test_a_copy_of_a_take_that_comes_late_takes_nothing_more(
    shared_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_redis.lpush("one", message("it"), message("next"))
    unacked = unacked_on(shared_redis)
    sent = noted(monkeypatch)
    taken = taken_by(unacked)

    again = shared_redis.execute_command(*sent[-1])

    assert again.endswith(message("it"))
    assert shared_redis.llen("one") == 1
    assert names(unacked.each_entry()) == names(taken) == ["it"]


def noted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The commands that are sent by `Line`, from now on."""
    sent: list[tuple[Any, ...]] = []
    ask = Line.ask

    def note(line: Line, *commands: Any) -> list[Any]:
        sent.extend(commands)
        return ask(line, *commands)

    monkeypatch.setattr(Line, "ask", note)
    return sent


@pytest.mark.parametrize("queue", ["two\nlines", "a\\nb", "a\\\\\n", "\n", "ü \t", "plain"])
def test_a_queue_may_have_any_name(shared_redis: redis.Redis, queue: str) -> None:
    shared_redis.lpush(queue, message("it"))
    unacked = unacked_on(shared_redis)
    (delivery,) = unacked.take([unacked.queues([queue], [queue])])
    assert delivery.queue == queue
    (entry,) = unacked.each_entry()
    assert entry.queue == queue
    unacked.give_back(Queues(), entry.tag, is_last=False)
    assert shared_redis.llen(queue) == 1


def test_the_list_of_unacked_hashes_forgets_empty_ones_alone(shared_redis: redis.Redis) -> None:
    unacked = unacked_on(shared_redis)
    unacked.open("ours")
    shared_redis.lpush("one", message("it"))
    taken_by(unacked)
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
    shared_redis.lpush("one", message("it"))
    sent = noted(monkeypatch)
    (delivery,) = taken_by(unacked)
    unacked.discard(delivery.tag)
    unacked.strike_off("ours")

    shared_redis.lpush("one", message("next"))
    shared_redis.execute_command(*sent[-1])
    assert len(unacked) == 1
    assert shared_redis.smembers("celery-reliable.unacked:ours") == {b"unacked:me"}


def test_what_was_left_in_an_inbox_is_taken_first(shared_redis: redis.Redis) -> None:
    with connected(shared_redis) as channel:
        shared_redis.lpush("one", message("new"))
        shared_redis.lpush("celery-reliable.inbox:one", message("left"))
        unacked = channel.reliable_unacked
        taken = unacked.take([unacked.queues(["one"], channel.lists(["one"]))] * 2)
    assert names(taken) == ["left", "new"]


def test_what_is_brought_back_from_an_inbox_has_its_place_again(shared_redis: redis.Redis) -> None:
    waiting = [message(str(n)) for n in range(3)]
    shared_redis.lpush("one", *waiting)
    with connected(shared_redis) as channel:
        for _ in range(2):
            shared_redis.lmove("one", "celery-reliable.inbox:one", "RIGHT", "LEFT")
        channel.bring_back()
    assert shared_redis.lrange("one", 0, -1) == waiting[::-1]
    assert not shared_redis.exists("celery-reliable.inbox:one")


def test_a_message_that_is_waited_for_is_in_the_inbox_and_then_taken(
    shared_redis: redis.Redis,
) -> None:
    with connected(shared_redis) as channel:
        channel.connection.cycle.on_poll_start()
        shared_redis.lpush("one", message("it"))
        assert shared_redis.lrange("celery-reliable.inbox:one", 0, -1) == [message("it")]

        with pytest.raises(Empty):
            channel.end_of_wait()

        assert names(channel.reliable_unacked.each_entry()) == ["it"]
        assert not shared_redis.exists("one", "celery-reliable.inbox:one")


def test_messages_that_several_workers_wait_for_are_taken_in_their_order(
    shared_redis: redis.Redis,
) -> None:
    with connected(shared_redis) as channel, connected(shared_redis) as other:
        for one in (channel, other):
            one.connection.cycle.on_poll_start()
        for number in range(3):
            shared_redis.lpush("one", message(str(number)))
        assert shared_redis.llen("celery-reliable.inbox:one") == 2
        unacked = channel.reliable_unacked
        taken = unacked.take([unacked.queues(["one"], channel.lists(["one"]))] * 3)
    assert names(taken) == ["0", "1", "2"]


def test_who_ends_leaves_nothing_in_an_inbox(shared_redis: redis.Redis) -> None:
    with connected(shared_redis) as channel:
        channel.connection.cycle.on_poll_start()
        shared_redis.lpush("one", message("it"))
    assert shared_redis.lrange("one", 0, -1) == [message("it")]
    assert not shared_redis.exists("celery-reliable.inbox:one")


@contextmanager
def connected(client: redis.Redis, *queues: str) -> Iterator[Any]:
    """A worker's channel that consumes from these queues, or from "one"."""
    port = client.connection_pool.connection_kwargs["port"]
    transport = "celery_reliable.transport:Transport"
    with Connection(f"redis://127.0.0.1:{port}", transport=transport) as connection:
        channel = connection.channel()
        for queue in queues or ("one",):
            channel.queue_declare(queue)
            channel.basic_consume(queue, False, lambda message: None, queue)
        channel.reliable_unacked = WorkerUnacked.opened("unacked:it", channel)
        channel.reliable_unacked.worker = WorkerHooks(steps=steps)
        yield channel


def test_a_worker_that_ends_gives_back_when_nobody_holds_a_claim_any_more(
    shared_redis: redis.Redis,
) -> None:
    n_waiting: list[int] = []
    with connected(shared_redis) as channel:
        unacked = channel.reliable_unacked
        shared_redis.lpush("one", message("it"))
        assert channel._take(1) == 1
        unacked.is_leaving = True
        # Whoever takes it before that is told that somebody runs it, and drops it.
        unacked.worker = WorkerHooks(
            steps=steps, before_leaving=lambda: n_waiting.append(shared_redis.llen("one"))
        )
    assert n_waiting == [0]
    assert shared_redis.llen("one") == 1
