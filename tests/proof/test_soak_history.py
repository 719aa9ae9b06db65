"""The history of a server tells of a claim that is not its attempt's, at any time."""

from __future__ import annotations

import pytest

from celery_reliable.model import StoredResult
from proof.leftovers import LEDGER
from proof.soak.history import History, history_in, step_end, strays
from tests.ledger.scene import Scene, open_ledger
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

REGISTER = [
    f"HSET {LEDGER}worker:me state alive",
    f"ZADD {LEDGER}workers 5000 me",
]
CLAIM = [
    f"HSET {LEDGER}task:a state running attempt 1 owner me token t pid 7",
    f"HSET {LEDGER}claims:me a 1=7=t",
]
SETTLE = [f"DEL {LEDGER}task:a", f"HDEL {LEDGER}claims:me a"]
FORGET = [f"DEL {LEDGER}worker:me", f"ZREM {LEDGER}workers me"]


def command(*words: str) -> bytes:
    parts = [word.replace("=", " ").encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def text_of(*steps: list[str], database: str = "0") -> bytes:
    """An append-only file with these steps, each of which is a transaction."""
    found = command("SELECT", database)
    for step in steps:
        lines = ["MULTI", *step, "EXEC"]
        found += b"".join(command(*line.split(" ")) for line in lines)
    return found


def found_in(text: bytes) -> list[str]:
    history = History()
    history.follow(text)
    return history.found


WELL = (REGISTER, CLAIM, SETTLE, FORGET)


def test_nothing_is_wrong_with_a_life_of_a_task_wherever_it_is_broken_off() -> None:
    text = text_of(*WELL)
    for end in range(len(text) + 1):
        assert found_in(text[:end]) == [], end


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ((REGISTER, CLAIM, SETTLE[:1]), "a: claimed by me"),
        ((REGISTER, CLAIM, SETTLE[:1], SETTLE[1:]), "a: claimed by me"),
        ((REGISTER, CLAIM, FORGET), "me: no pass looks at it"),
        ((REGISTER, CLAIM, FORGET[1:]), "me: no pass looks at it"),
        ((REGISTER[:1], CLAIM), "me: no pass looks at it"),
        ((REGISTER, CLAIM, [f"HSET {LEDGER}task:a state queued"]), "a: claimed by me"),
        ((REGISTER, CLAIM, [f"HSET {LEDGER}task:a owner other"]), "a: claimed by me"),
        ((REGISTER, CLAIM, [f"HINCRBY {LEDGER}task:a attempt 1"]), "a: claimed by me"),
        ((REGISTER, CLAIM[1:]), "a: claimed by me"),
    ],
)
def test_a_claim_that_is_left_for_a_moment_is_told(steps: tuple[list[str], ...], says: str) -> None:
    (first, *_) = found_in(text_of(*steps))
    assert first.startswith(says)
    assert "HSET" in first, "the commands before it"


def test_a_step_is_lost_as_a_whole() -> None:
    text = text_of(*WELL)
    # Where the file has its first step, its first two, and so on.
    ends = [len(text_of(*WELL[:n])) for n in range(len(WELL) + 1)]
    for size in range(len(text) + 1):
        assert step_end(text, size) == next(end for end in ends if end >= size)
    # What is broken off at its end is not cut twice.
    assert step_end(text[:-1], len(text) - 1) == len(text) - 1


def test_what_a_real_server_writes_is_followed(redis_server: RedisServer) -> None:
    ledger = open_ledger(redis_server.url(), namespace="reliable")
    scene = Scene(ledger, redis_server.client())
    scene.start_worker("me")
    result = StoredResult("result", "done", "done", 0, 1)
    scene.ledger.settle(scene.claim(scene.publish("a")), result)
    lost = scene.claim(scene.publish("b"))
    scene.kill_worker("me")
    scene.lose(lost)
    assert scene.workers.deregister("me", in_unacked=0)
    ledger.close()

    def followed() -> History:
        history = History()
        history.follow(history_in(redis_server.directory))
        return history

    # While it syncs the file, the server answers before it writes.
    wait_for(lambda: followed().n_claims == 4, 20, "the file has it all")
    assert followed().found == []
    scene.client.hset(f"{LEDGER}claims:me", "b", "1 7 t")
    wait_for(lambda: len(strays(redis_server.directory)) == 2, 20, "the file has that too")
    nobodys, ended = strays(redis_server.directory)
    assert nobodys.startswith("me: no pass looks at it")
    assert ended.startswith("b: claimed by me")
