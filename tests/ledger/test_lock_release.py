"""The lock of an object: a record holds it and not a clock, and whatever ends its task frees it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from celery_reliable.ledger.answers import Fenced
from celery_reliable.model import Claim, State
from tests.ledger.scene import LOOK_MS, Scene, holding
from tests.support.promises import promise

THREADS = 8


def start(scene: Scene, task_id: str) -> Claim:
    return scene.claim(scene.publish(task_id))


GOES_ON: dict[str, Callable[[Scene, Claim], object]] = {
    "runs": lambda scene, claim: None,
    "is queued again": lambda scene, claim: scene.lose(claim),
    "is parked": lambda scene, claim: scene.publish("holder", claim=claim, state=State.PARKED),
    "is replaced": lambda scene, claim: scene.ledger.replace(claim, due_in_ms=LOOK_MS),
}


@promise("one-object")
@pytest.mark.parametrize("how", GOES_ON)
def test_a_task_that_lives_holds_its_object(scene: Scene, how: str) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    assert scene.locks.take("object", holder) is None

    GOES_ON[how](scene, holder)
    before = scene.snapshot()

    assert scene.locks.take("object", other) == "holder"
    assert scene.snapshot() == before
    assert scene.locks.take("another object", other) is None


@promise("one-object")
def test_of_many_that_see_a_lock_to_be_taken_over_one_gets_it(scene: Scene) -> None:
    holder = start(scene, "holder")
    scene.locks.take("object", holder)
    scene.ledger.settle(holder)
    claims = [start(scene, f"task {n}") for n in range(THREADS)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda claim: scene.locks.take("object", claim), claims))

    winners = [claim.task_id for claim, holder in zip(claims, found, strict=True) if not holder]
    assert len(winners) == 1
    assert {holder for holder in found if holder} == set(winners)


def test_the_object_of_a_publication_is_not_taken_over_from_another_than_was_seen(
    scene: Scene,
) -> None:
    holder, quicker = start(scene, "holder"), start(scene, "quicker")
    scene.publish("slower")
    scene.locks.take("object", holder)
    scene.forget_object("holder")
    scene.ledger.settle(holder)
    run, numbers = scene.ledger._caller.run, count(1)

    def late(*args: Any, **options: Any) -> Any:
        # The quicker one takes over while the slower one looks whether the holder lives.
        if next(numbers) == 3:
            scene.ledger._caller.run = run  # type: ignore[method-assign]
            scene.locks.take("object", quicker)
        return run(*args, **options)

    scene.ledger._caller.run = late  # type: ignore[method-assign]

    assert scene.locks.take("object", holding(scene, "slower")) == "quicker"


def test_a_call_is_answered_with_what_goes_on_after_all(scene: Scene) -> None:
    message = scene.publish("holder")
    first = scene.claim(message)
    scene.locks.take("object", first)
    scene.ledger.conclude(first)
    scene.lose(first)
    scene.publish("a call")
    assert scene.locks.take("object", holding(scene, "a call")) == "holder"

    second = scene.claim(message)
    assert isinstance(scene.ledger.conclude(first), Fenced)
    assert scene.locks.take("object", holding(scene, "a call")) == "holder"
    # And with what takes its time to end, so that nobody waits for ever.
    scene.ledger.conclude(second)
    assert scene.locks.take("object", holding(scene, "a call")) == "holder"


def test_a_call_does_not_get_the_object_of_what_is_still_to_be_stopped(scene: Scene) -> None:
    holder = start(scene, "holder")
    scene.locks.take("object", holder)
    scene.take(holder, max_losses=0)
    scene.publish("a call")

    assert scene.locks.take("object", holding(scene, "a call")) is None

    assert scene.client.get(scene.ledger.keys.lock("object")) == b"1:holder"
