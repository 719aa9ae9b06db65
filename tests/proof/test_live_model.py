"""A live server is watched, and each call of a script compared with the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count, pairwise

import pytest
import redis

from celery_reliable.ledger import Ledger
from celery_reliable.model import Claim, Room, TaskRef
from proof.live import Verified, verify
from proof.traces import recording
from tests.ledger.scene import Scene, open_ledger
from tests.ledger.taking import Taking
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

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
    """A task is lost and settled; one is buried, replayed and called off; one has an object, for
    which another waits.
    """
    number = next(numbers)
    message = scene.publish(f"lost {number}")
    scene.lose(scene.claim(message))
    scene.ledger.settle(scene.claim(message), outcome="SUCCESS")
    name = f"buried {number}"
    scene.bury(scene.claim(scene.publish(name)))
    scene.ledger.replay(
        TaskRef(name, "app.work"), epoch=f"{name}-again", message=SECRET, due_in_ms=1000
    )
    scene.ledger.revoke(name)
    room, claims = Room(f"object {number}", 1), []
    for name in (f"third {number}", f"fourth {number}"):
        claims.append(scene.claim(scene.publish(name)))
        scene.ledger.take_place(room, claims[-1], due_in_ms=1000, stands=True)
    scene.ledger.settle(claims[0])
    scene.ledger.revoke(f"fourth {number}")


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
    assert {"claim", "lose", "bury", "settle", "cancel", "place"} <= set(found.judged)
    assert found.judged.total() > 70


@pytest.mark.usefixtures("recorded")
def test_a_script_that_does_something_else_is_named(
    ledger: Ledger, redis_server: RedisServer
) -> None:
    def changed(name: str, text: str) -> str:
        old = "redis.call('HDEL', KEYS.claims, ARGV.id)\nfree("
        assert name != "settle" or old in text
        return text.replace(old, "free(")

    # Changed, and not recorded.
    recording.start(changed)
    with redis_server.client() as client:
        scene = Scene(ledger, client)
        scene.start_worker("me")
        scene.publish("first")
        numbers = count()
        found = watched(ledger, client, lambda: live(scene, numbers), 120)

    assert "settle(" in found.problem
    assert "claims:me" in found.problem
    assert SECRET not in found.problem


def take(queues: Taking, numbers: Iterator[int]) -> None:
    """A process takes a task, then two with settlements of the one before, one of them twice; the
    last has its object since it was published.  Then it finds what it may not claim, and nothing.
    """
    number, ledger = next(numbers), queues.scene.ledger
    names, thing = [f"{one} {number}" for one in ("first", "second", "third")], f"object {number}"
    for name in names:
        queues.put(name, unique=thing if name == names[2] else None)
    tags = [queues.next_tag() for _ in range(5)]
    assert queues.take(tags[0]).answer
    for n, (before, tag) in enumerate(pairwise(tags[:3])):
        claim = Claim(names[n], 1, "me", before)
        ledger.settle(claim, along=queues.step(tag, before), outcome="SUCCESS")
    assert queues.take(tags[2], tags[1]).message
    queues.put(f"cold {number}", task="app.cold")
    last = Claim(names[2], 1, "me", tags[2])
    ledger.settle(last, along=queues.step(tags[3], tags[2]))
    assert queues.take(tags[4], tags[3]).message is None


def taken(ledger: Ledger, client: redis.Redis, calls: int) -> Verified:
    """What a look says of a process that takes its own messages."""
    scene = Scene(ledger, client)
    scene.start_worker("me")
    scene.publish("first")
    queues, numbers = Taking(scene), count()
    return watched(ledger, client, lambda: take(queues, numbers), calls)


def test_what_processes_take_by_themselves_is_judged(
    ledger: Ledger, redis_server: RedisServer
) -> None:
    with redis_server.client() as client:
        found = taken(ledger, client, 200)

    assert found.problem == ""
    assert not found.uncovered
    assert min(found.judged["claim"], found.judged["settle"]) > 10
    # What was taken while the look began is not judged.
    assert "record" in found.unjudged
    assert max(found.unjudged["claim"], found.unjudged["settle"]) <= 4
