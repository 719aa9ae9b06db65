"""A live server is watched, and each call of a script compared with the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest
import redis

from celery_reliable.ledger import Ledger, recording, scripts
from celery_reliable.operations.verifying import Verified, verify
from tests.ledger.scene import Scene, open_ledger
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

SECRET = "the user's own words"


@pytest.fixture
def ledger(redis_server: RedisServer) -> Iterator[Ledger]:
    found = open_ledger(redis_server.url(), "live")
    yield found
    found.close()


def watched(ledger: Ledger, client: redis.Redis, act: Callable[[], None], calls: int) -> Verified:
    """What a look says of so many calls that are made meanwhile."""
    found: list[Verified] = []
    thread = threading.Thread(
        target=lambda: found.append(verify(ledger, seconds=60, most_calls=calls))
    )
    thread.start()
    wait_for(lambda: "monitor" in str(client.client_list()), 15, "the look to begin")
    # It reads what is there before the first call.
    while thread.is_alive():
        act()
    thread.join()
    return found[0]


def live(scene: Scene, numbers: Iterator[int]) -> None:
    """A task is lost and settled; one is buried, replayed and called off; one has an object."""
    number = next(numbers)
    message = scene.publish(f"lost {number}")
    scene.lose(scene.claim(message))
    scene.ledger.settle(scene.claim(message), outcome="SUCCESS")
    name = f"buried {number}"
    scene.bury(scene.claim(scene.publish(name)))
    scene.ledger.replay(name, epoch=f"{name}-again", message=SECRET, due_in_ms=1000)
    scene.ledger.revoke(name)
    claim = scene.claim(scene.publish(f"third {number}"))
    scene.locks.take(f"object {number}", claim)
    scene.ledger.settle(claim)


def test_a_server_that_does_what_it_should(ledger: Ledger, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        scene = Scene(ledger, client)
        scene.start_worker("me")
        scene.publish("first")
        numbers = count()

        found = watched(ledger, client, lambda: live(scene, numbers), 120)

    assert found.problem == ""
    assert found.is_cut_short
    assert not found.uncovered
    assert {"claim", "lose", "bury", "replay", "settle", "cancel"} <= set(found.judged)
    assert found.judged.total() > 40


def test_a_script_that_does_something_else_is_named(
    ledger: Ledger, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(name: str, text: str) -> str:
        old = "redis.call('HDEL', KEYS[3], ARGV[1])\nif ARGV[10]"
        assert name != "settle" or old in text
        return text.replace(old, "if ARGV[10]")

    monkeypatch.setenv(recording.TRACE_VARIABLE, "yes")
    monkeypatch.setattr(scripts, "recorded", changed)
    scripts.script.cache_clear()
    with redis_server.client() as client:
        scene = Scene(ledger, client)
        scene.start_worker("me")
        scene.publish("first")
        numbers = count()
        found = watched(ledger, client, lambda: live(scene, numbers), 120)
    scripts.script.cache_clear()

    assert "settle(" in found.problem
    assert "claims:me" in found.problem
    assert SECRET not in found.problem
