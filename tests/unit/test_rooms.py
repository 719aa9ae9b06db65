"""A worker's room: what is taken from the queues is in it, whatever happens in between."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

import pytest
import redis
from kombu import Connection
from redis.backoff import NoBackoff
from redis.retry import Retry

from celery_reliable.ledger.line import Line
from celery_reliable.rooms import Room
from tests.support.proxy import RedisProxy

SCRIPTS = sorted(resources.files("celery_reliable.rooms").joinpath("lua").iterdir(), key=str)
#: All that they may do: with the room, with lists, and with the list of rooms.
COMMANDS = {"EXISTS", "HDEL", "HEXISTS", "HSET", "LLEN", "RPOP", "RPUSH", "SREM"}
TRANSPORT = "celery_reliable.transport:Transport"
QUEUES = ["one", "two"]
LISTS = ["one", "two", "one:3", "two:3"]


def message(name: str) -> bytes:
    """A message as kombu leaves it in a list."""
    properties = {"delivery_tag": f"tag of {name}", "delivery_info": {"routing_key": "x"}}
    return json.dumps({"body": "", "headers": {"id": name}, "properties": properties}).encode()


def sendable(name: str) -> bytes:
    """The same with all that a consumer wants to see."""
    told = {"exchange": "", "routing_key": "one"}
    fields = json.loads(message(name))
    fields["properties"]["delivery_info"] = told
    return json.dumps(fields).encode()


def names(found: list[Any]) -> list[str]:
    """The names of messages."""
    return [json.loads(one.raw)["headers"]["id"] for one in found]


class Queues:
    """As much of a channel as a room asks for."""

    def _get_message_priority(self, payload: dict[str, Any], reverse: bool) -> int:
        return int(payload["properties"].get("priority", 0))

    def _q_for_pri(self, queue: str, priority: int) -> str:
        return f"{queue}:{priority}" if priority else queue


def room_on(client: redis.Redis, prefix: str = "") -> Room:
    """A room on the server of a client."""
    return Room("unacked:me", client.connection_pool, prefix)


@pytest.mark.parametrize("file", SCRIPTS, ids=lambda file: file.name)
def test_header_and_body_agree(file: Any) -> None:
    match = re.fullmatch(r"--\[\[\n(.*?)\n\]\]\n(.*)", file.read_text("utf-8"), re.DOTALL)
    assert match
    header, body = match.groups()
    assert header.startswith(f"{file.name.removesuffix('.lua')}: ")
    assert all(re.search(rf"^{title} +\S", header, re.MULTILINE) for title in ("Returns", "Cost"))
    for kind in ("KEYS", "ARGV"):
        listed = [int(n) for n in re.findall(rf"^{kind}\[(\d+)[\].]", header, re.MULTILINE)]
        used = {int(n) for n in re.findall(rf"\b{kind}\[(\d+)\]", body)}
        assert listed == list(range(1, len(listed) + 1))
        # The last may stand for many, and is counted to.
        assert used <= set(listed)
        assert len(listed) - len(used) <= ("[9..]" in header)
    assert set(re.findall(r"redis\.call\('(\w+)'", body)) <= COMMANDS


def test_the_first_priority_goes_first_and_queues_take_turns(shared_redis: redis.Redis) -> None:
    for key, item in [("one:3", "low"), ("one", "a1"), ("one", "a2"), ("two", "b1")]:
        shared_redis.lpush(key, message(item))
    room = room_on(shared_redis)
    taken = room.take(QUEUES, LISTS, 10)
    assert names(taken.deliveries) == ["a1", "b1", "a2", "low"]
    assert [one.queue for one in taken.deliveries] == ["one", "two", "one", "one"]
    assert taken.n_waiting == 0
    assert sorted(names(room.each_entry())) == ["a1", "a2", "b1", "low"]
    assert {one.tag for one in room.each_entry()} == {one.tag for one in taken.deliveries}


def test_without_turns_the_first_queue_is_emptied_first(shared_redis: redis.Redis) -> None:
    for key, item in [("one:3", "low"), ("one", "a1"), ("one", "a2"), ("two", "b1")]:
        shared_redis.lpush(key, message(item))
    taken = room_on(shared_redis).take(QUEUES, LISTS, 10, in_turn=False)
    assert names(taken.deliveries) == ["a1", "a2", "b1", "low"]
    assert [one.queue for one in taken.deliveries] == ["one", "one", "two", "one"]


def test_no_more_is_taken_than_asked_for(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(3)])
    room = room_on(shared_redis)
    first = room.take(QUEUES, LISTS, 2)
    assert (names(first.deliveries), first.n_waiting) == (["0", "1"], 1)
    nothing = room.take(QUEUES, LISTS, 0)
    assert (nothing.deliveries, nothing.n_waiting) == ([], 1)
    assert names(room.take(QUEUES, LISTS, 2).deliveries) == ["2"]


@pytest.mark.parametrize(("plenty", "taken"), [(4, 3), (5, 1)])
def test_more_is_taken_only_where_plenty_remain(
    shared_redis: redis.Redis, plenty: int, taken: int
) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(6)])
    shared_redis.lpush("two:3", message("low"))
    found = room_on(shared_redis).take(QUEUES, LISTS, 1, most=3, plenty=plenty)
    assert names(found.deliveries) == [str(n) for n in range(taken)]
    assert found.n_waiting == 7 - taken


def test_what_is_acknowledged_goes_with_the_next_take(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(4)])
    room = room_on(shared_redis)
    first = room.take(QUEUES, LISTS, 3).deliveries
    for delivery in first[:2]:
        room.remove_soon(delivery.tag)
    assert len(room) == 3
    room.take(QUEUES, LISTS, 1, ("one", "one", message("popped")))
    assert sorted(names(room.each_entry())) == ["2", "3", "popped"]
    room.remove_soon(first[2].tag)
    room.catch_up()
    assert sorted(names(room.each_entry())) == ["3", "popped"]


def test_an_acknowledgement_whose_take_failed_is_made_up_for(proxy: RedisProxy) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        client.lpush("one", message("it"))
        room = room_on(client)
        (delivery,) = room.take(QUEUES, LISTS, 1).deliveries
        room.remove_soon(delivery.tag)
        proxy.drop_request("EVALSHA")
        with pytest.raises(redis.ConnectionError):
            room.take(QUEUES, LISTS, 0)
        assert len(room) == 1
        room.take(QUEUES, LISTS, 0)
        assert len(room) == 0


def test_what_was_popped_is_filed_with_what_came_behind_it(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("two", message("behind"))
    room = room_on(shared_redis, "app1:")
    shared_redis.rename("two", "app1:two")
    taken = room.take(QUEUES, LISTS, 5, ("one", "one", message("popped")))
    assert names(taken.deliveries) == ["popped", "behind"]
    assert shared_redis.hlen("app1:unacked:me") == 2


def test_what_was_popped_before_the_last_queue_was_cancelled_is_filed(
    shared_redis: redis.Redis,
) -> None:
    room = room_on(shared_redis)
    taken = room.take([], [], 0, ("one", "one", message("popped")))
    assert (names(taken.deliveries), taken.n_waiting) == (["popped"], 0)
    assert names(room.each_entry()) == ["popped"]


@pytest.mark.parametrize("is_filed", [False, True])
def test_what_may_not_have_been_filed_is_not_lost(
    shared_redis: redis.Redis, proxy: RedisProxy, is_filed: bool
) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        room = room_on(client)
        room.take(QUEUES, LISTS, 0)
        lose = proxy.drop_reply if is_filed else proxy.drop_request
        lose("EVALSHA")
        with pytest.raises(redis.ConnectionError):
            room.take(QUEUES, LISTS, 0, ("one", "one", message("popped")))
        for _ in range(2):
            room.catch_up()
        assert client.llen("one") == (0 if is_filed else 1)
        assert len(room) == (1 if is_filed else 0)
        # Nobody was delivered it: it goes back on the second sighting.
        for _ in range(2):
            room.reconcile(Queues(), held=())
        assert client.llen("one") == 1
        assert len(room) == 0


def test_a_full_redis_can_be_drained(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(2)])
    shared_redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            shared_redis.lpush("one", message("one more"))
        room = room_on(shared_redis)
        popped = shared_redis.rpop("one")
        taken = room.take(QUEUES, LISTS, 1, ("one", "one", popped))
        assert names(taken.deliveries) == ["0", "1"]
        assert room.give_back(Queues(), taken.deliveries[0].tag, is_last=True)
    finally:
        shared_redis.config_set("maxmemory", 0)
    assert shared_redis.llen("one") == 1


def test_a_take_that_is_asked_for_again_takes_nothing_more(
    shared_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(6)])
    ask = Line.ask

    def ask_twice(line: Line, *commands: Sequence[Any]) -> list[Any]:
        ask(line, *commands)
        return ask(line, *commands)

    room = room_on(shared_redis)
    monkeypatch.setattr(Line, "ask", ask_twice)
    assert room.take(QUEUES, LISTS, 2).deliveries == []
    assert (shared_redis.llen("one"), len(room)) == (4, 2)
    assert sorted(names(room.each_entry())) == ["0", "1"]


def test_a_connection_that_was_closed_meanwhile_is_made_anew(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", *[message(str(n)) for n in range(2)])
    room = room_on(shared_redis)
    assert len(room.take(QUEUES, LISTS, 1).deliveries) == 1
    assert shared_redis.client_kill_filter(_type="normal", skipme=True) >= 1
    assert len(room.take(QUEUES, LISTS, 1).deliveries) == 1


class Beside:
    """What is sent beside a take."""

    def __init__(self, script: str, *keys_and_args: object) -> None:
        self.call = (script, *keys_and_args)
        self.heard: list[Any] = []

    def hear(self, raw: Any) -> None:
        self.heard.append(raw)


def test_what_is_sent_beside_a_take_is_answered_beside_it(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", message("it"))
    room = room_on(shared_redis)
    shared_redis.script_flush()
    known = shared_redis.script_load("return {KEYS[1], ARGV[1]}")
    # The server does not know the room's own script either.
    unknown = Beside("0" * 40, 0)
    assert len(room.take(QUEUES, LISTS, 1, beside=unknown).deliveries) == 1
    assert [type(raw) for raw in unknown.heard] == [redis.exceptions.NoScriptError]
    beside = Beside(known, 1, "key", "argument")
    assert room.take(QUEUES, LISTS, 0, ("one", "one", message("popped")), beside=beside).deliveries
    assert beside.heard == [[b"key", b"argument"]]


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"__type__": "decimal", "__value__": "abc"}',
        b"\xff\n no json",
        b"[1]",
        b'{"properties": 3}',
        b"7",
    ],
)
def test_what_is_no_message_goes_back_as_it_was(shared_redis: redis.Redis, raw: bytes) -> None:
    shared_redis.lpush("one", raw)
    room = room_on(shared_redis)
    (delivery,) = room.take(QUEUES, LISTS, 1).deliveries
    (entry,) = room.each_entry()
    assert (entry.payload, entry.task_id, entry.raw) == (None, "", raw)
    assert room.give_back(Queues(), delivery.tag, is_last=False)
    assert shared_redis.lrange("one", 0, -1) == [raw]


def test_a_returned_message_is_marked_and_counted(shared_redis: redis.Redis) -> None:
    shared_redis.lpush("one", message("it"), message("other"))
    room = room_on(shared_redis)
    (delivery,) = room.take(QUEUES, LISTS, 1).deliveries
    assert room.give_back(Queues(), delivery.tag, is_last=False, returns=1)
    assert not room.give_back(Queues(), delivery.tag, is_last=False)
    again = room.take(QUEUES, LISTS, 1).deliveries
    assert names(again) == ["it"]
    properties = json.loads(again[0].raw)["properties"]
    assert properties["delivery_info"]["redelivered"] is True
    assert properties["delivery_tag"] != "tag of it"
    (entry,) = room.each_entry()
    assert entry.returns == 1


@pytest.mark.parametrize("is_begun", [False, True])
def test_what_waited_is_kept_by_who_still_has_it(shared_redis: redis.Redis, is_begun: bool) -> None:
    shared_redis.lpush("one", message("it"))
    room = room_on(shared_redis)
    (delivery,) = room.take(QUEUES, LISTS, 1).deliveries
    assert room.keep(delivery.tag, is_begun=is_begun)
    assert len(room) == (0 if is_begun else 1)
    room.give_back(Queues(), delivery.tag, is_last=False)
    assert not room.keep(delivery.tag, is_begun=is_begun)


def test_what_may_have_been_removed_is_kept_and_what_was_not_seen_is_not(
    proxy: RedisProxy,
) -> None:
    with redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0)) as client:
        client.lpush("one", message("it"))
        room = room_on(client)
        (delivery,) = room.take(QUEUES, LISTS, 1).deliveries
        proxy.drop_reply("HEXISTS")
        assert not room.keep(delivery.tag, is_begun=True)
        assert len(room) == 1
        proxy.drop_reply("HDEL")
        assert room.keep(delivery.tag, is_begun=True)
        assert len(room) == 0


@pytest.mark.parametrize("queue", ["two\nlines", "a\\nb", "a\\\\\n", "\n", "ü \t", "plain"])
def test_a_queue_may_have_any_name(shared_redis: redis.Redis, queue: str) -> None:
    shared_redis.lpush(queue, message("behind"))
    room = room_on(shared_redis)
    taken = room.take([queue], [queue], 1, (queue, queue, message("popped")))
    assert [one.queue for one in taken.deliveries] == [queue, queue]
    entries = list(room.each_entry())
    assert {entry.queue for entry in entries} == {queue}
    assert sorted(names(entries)) == ["behind", "popped"]
    for entry in entries:
        room.give_back(Queues(), entry.tag, is_last=False)
    assert shared_redis.llen(queue) == 2


def test_the_list_of_rooms_forgets_empty_ones_alone(shared_redis: redis.Redis) -> None:
    room = room_on(shared_redis)
    room.open("ours")
    room.take(QUEUES, LISTS, 0, ("one", "one", message("it")))
    room.strike_off("ours")
    assert shared_redis.smembers("celery-reliable.rooms:ours") == {b"unacked:me"}
    (entry,) = room.each_entry()
    room.discard(entry.tag)
    room.strike_off("ours")
    assert not shared_redis.exists("celery-reliable.rooms:ours")


def test_a_room_is_on_its_list_again_when_something_is_filed_after_its_worker_may_be_forgotten(
    shared_redis: redis.Redis,
) -> None:
    room, lease, is_sure = room_on(shared_redis), "me.0", True
    room.holder, room.is_sure = lambda: lease, lambda name: is_sure
    room.open("ours")

    def is_listed_after_a_take() -> bool:
        shared_redis.delete("celery-reliable.rooms:ours")
        room.take(QUEUES, LISTS, 1)
        return bool(shared_redis.exists("celery-reliable.rooms:ours"))

    # Nobody can have struck it off: then nothing is asked for.
    assert not is_listed_after_a_take()
    lease = "me.1"
    assert is_listed_after_a_take()
    assert not is_listed_after_a_take()
    is_sure = False
    assert is_listed_after_a_take()


def test_what_was_popped_is_not_forgotten_when_the_list_cannot_be_reached(
    proxy: RedisProxy,
) -> None:
    client = redis.Redis(port=proxy.port, retry=Retry(NoBackoff(), 0))
    room = room_on(client)
    room.open("ours")
    proxy.drop_request("SADD")
    with pytest.raises(redis.ConnectionError):
        room.take(QUEUES, LISTS, 0, ("one", "one", message("popped")))

    room.catch_up()
    assert client.lrange("one", 0, -1) == [message("popped")]
    client.close()


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
        channel.reliable_room = "unacked:it"
        room = channel.qos.room
        room.idle_slots, room.early = (lambda: idle), (claims := Claims())
        if not is_consumed:
            channel.basic_cancel("tag")
        channel._take(("one", "one", sendable("it")))
        assert (claims.asked, len(delivered)) == (asked, int(is_consumed))
        # What nobody consumes any more goes back.
        assert shared_redis.llen("one") == int(not is_consumed)
        room.is_leaving = True


def test_a_worker_that_ends_gives_back_when_nobody_holds_a_claim_any_more(
    shared_redis: redis.Redis,
) -> None:
    port = shared_redis.connection_pool.connection_kwargs["port"]
    n_waiting: list[int] = []
    with Connection(f"redis://127.0.0.1:{port}", transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        channel.basic_consume("one", False, lambda message: None, "tag")
        channel.reliable_room = "unacked:it"
        room = channel.qos.room
        channel._take(("one", "one", sendable("it")))
        room.is_leaving = True
        # Whoever takes it before that is told that somebody runs it, and drops it.
        room.before_leaving = lambda: n_waiting.append(shared_redis.llen("one"))
    assert n_waiting == [0]
    assert shared_redis.llen("one") == 1


def test_what_could_not_be_given_back_is_given_back_later(proxy: RedisProxy) -> None:
    with Connection(proxy.url(), transport=TRANSPORT) as connection:
        channel = connection.channel()
        channel.queue_declare("one")
        delivered: list[Any] = []
        channel.basic_consume("one", False, delivered.append, "tag")
        channel.reliable_room = "unacked:severed"
        room = channel.qos.room
        channel._take(("one", "one", sendable("it")))
        (message,) = delivered
        proxy.sever()
        # Celery goes on as if it had been given back.
        with pytest.raises(tuple(connection.connection_errors)):
            message.reject(requeue=True)
        proxy.mend()

        given = [
            room.reconcile(channel, held=set(channel.qos._delivered) - set(channel.qos._dirty))
            for _ in range(2)
        ]
        assert (sum(given), len(room)) == (1, 0)
        room.is_leaving = True
