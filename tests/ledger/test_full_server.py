"""A full server refuses what makes more of it, and runs everything else.

Redis refuses a command that needs memory in a script that has not written before. So each script
begins to write with a removal, on each of its ways; what it removes may be nothing. Those of which
something else is true say so in their headers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import redis
from kombu import Connection

from celery_reliable.broker import sending_again, sending_transport_for
from celery_reliable.broker.unacked import script as broker_script
from celery_reliable.ledger import scripts
from tests.ledger.scene import Scene, open_ledger
from tests.ledger.stages import STAGES, STEPS, Steps
from tests.support.redis_server import RedisServer

#: What a full server does of a script, by the header.
FULL = {
    name: said[1]
    for name in scripts.names()
    if (said := re.search(r"^Full +(.*)$", scripts.source(name), re.MULTILINE))
}
#: New work, which it refuses.
REFUSED = {name for name, said in FULL.items() if said.startswith("refused")}
IN_BROKER = ("give_back", "send", "strike_off", "take", "take")

NEEDS_MEMORY = {"HINCRBY", "HSET", "LPUSH", "RPUSH", "SADD", "SET", "XADD", "ZADD"}
REMOVES = "DEL|HDEL|LREM|RPOP|SREM|ZREM"
#: A line on which a removal is made in any case.
REMOVAL = re.compile(rf"\s*(?:local [\w, ]+ = |[\w\[\]]+ = |if )?redis\.p?call\('(?:{REMOVES})'")
#: What a script calls writes no sooner than it is called.
FUNCTION = re.compile(r"^local function .*?^end\n", re.MULTILINE | re.DOTALL)


def refused_writes(text: str) -> list[str]:
    """Return the lines of a script that a full server may refuse: those to which a way leads on
    which nothing is removed before. The ways are told by how far the lines are indented.
    """
    lines = [line.partition("--")[0] for line in text.partition("\n]]\n")[2].splitlines()]
    depths = [len(line) - len(line.lstrip()) for line in lines]
    found = []
    for at, line in enumerate(lines):
        if not NEEDS_MEMORY & set(re.findall(r"redis\.p?call\('(\w+)'", line)):
            continue
        depth = depths[at]
        for before in range(at - 1, -1, -1):
            if lines[before].strip() and depths[before] <= depth:
                if REMOVAL.match(lines[before]):
                    break
                depth = depths[before]
        else:
            found.append(line.strip())
    return found


def body_of(name: str) -> str:
    """A script of the ledger as it is sent, without the functions that it calls."""
    return FUNCTION.sub("", scripts.script(name).text)


@pytest.mark.parametrize("name", sorted({*scripts.names()} - {*FULL}))
def test_each_script_of_the_ledger_begins_to_write_with_a_removal(name: str) -> None:
    assert refused_writes(body_of(name)) == []


@pytest.mark.parametrize("name", IN_BROKER)
def test_each_script_of_the_broker_does_so_too(name: str) -> None:
    assert refused_writes(broker_script(name).text) == []


def test_new_work_and_long_results_are_refused_and_nothing_else() -> None:
    assert sorted(REFUSED) == ["begin_run", "record"]
    assert sorted({*FULL} - REFUSED) == ["settle", "store"]


@pytest.mark.parametrize("name", sorted(FULL))
def test_what_a_full_server_may_refuse_is_seen(name: str) -> None:
    assert refused_writes(scripts.script(name).text)


@pytest.mark.parametrize(
    "step",
    sorted(
        {"record_as_attempt"}.union(
            one for one in STEPS if one.partition("_")[0] not in {*REFUSED, "replay"}
        )
    ),
)
def test_a_full_server_answers_what_any_server_answers(
    redis_server: RedisServer, step: str
) -> None:
    with redis_server.client() as client:
        for stage in STAGES:
            answers = []
            for how in (nullcontext(), full(client)):
                ledger = open_ledger(redis_server.url(), f"n{stage}{len(answers)}")
                scene = Scene(ledger, client)
                scene.start_worker("me")
                scene.start_worker("other")
                steps = Steps(scene, STAGES[stage](scene))
                with how:
                    answer = steps.take(step)
                answers.append((answer.word, scene.state()))
                ledger.close()
            assert answers[0] == answers[1], stage


@contextmanager
def full(client: redis.Redis) -> Iterator[None]:
    """Have a server refuse what needs memory."""
    client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        client.config_set("maxmemory", 0)


def test_what_is_recorded_goes_to_its_list_on_a_full_server(redis_server: RedisServer) -> None:
    transport = sending_transport_for("redis")
    with Connection(redis_server.url(), transport=transport) as connection:
        client: Any = redis_server.client()
        producer = connection.Producer(serializer="json")

        def send(what: str) -> None:
            producer.publish(what, routing_key="queue")

        with full(client):
            with pytest.raises(redis.ResponseError):
                send("new")
            with sending_again(is_first=False):
                send("behind")
            with sending_again(is_first=True):
                send("first")
        bodies = [json.loads(one)["body"] for one in client.lrange("queue", 0, -1)]
        client.close()
    sent = [json.loads(base64.b64decode(body)) for body in bodies]
    assert sent == ["behind", "first"]
