"""The lock of an object: a record holds it and not a clock, and whatever ends its task frees it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_reliable.ledger.answers import Answer, Concluding, Fenced, Unknown
from celery_reliable.model import Claim, State, TaskRef
from tests.ledger.scene import ABSENT, LOOK_MS, Scene
from tests.support.promises import promise

THREADS = 8
REF = TaskRef("task", "app.work")


def start(scene: Scene, task_id: str) -> Claim:
    return scene.claim(scene.publish(task_id))


GOES_ON: dict[str, Callable[[Scene, Claim], object]] = {
    "runs": lambda scene, claim: None,
    "is queued again": lambda scene, claim: scene.lose(claim),
    "is parked": lambda scene, claim: scene.publish("holder", claim=claim, state=State.WAITING),
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
def test_of_many_calls_one_gets_the_object_and_the_others_leave_nothing(scene: Scene) -> None:
    # Its lock is there, of a task that is over, and all of them see that.
    holder = start(scene, "holder")
    scene.locks.take("object", holder)
    scene.forget_object("holder")
    scene.ledger.settle(holder)
    names = [f"task {n}" for n in range(THREADS)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(scene.call, names))

    (winner,) = (name for name, holder in zip(names, found, strict=True) if holder is None)
    assert {holder for holder in found if holder} == {winner}
    assert [name for name in names if scene.state(name) != ABSENT] == [winner]


@pytest.mark.parametrize("why", ["lives", "is kept", "is to be stopped"])
def test_a_late_copy_of_a_call_that_was_refused_publishes_nothing(scene: Scene, why: str) -> None:
    holder = start(scene, "holder")
    scene.locks.take("object", holder)
    if why == "is kept":
        scene.ledger.settle(holder, keep_ms=LOOK_MS)
    elif why == "is to be stopped":
        scene.take(holder, max_losses=0)
    epoch = scene.ledger.senders.new_epoch(0)

    def record() -> Answer:
        return scene.record(REF, epoch, unique="object")

    refused = record()
    scene.client.delete(scene.ledger.keys.lock("object"))

    assert record() == refused
    # Its sender has gone on.
    scene.ledger.senders.answered(epoch)
    scene.publish("another")
    assert isinstance(record(), Unknown)
    assert scene.state() == ABSENT


def test_a_kept_object_refuses_the_very_task_that_is_kept(scene: Scene) -> None:
    scene.publish(unique="object")
    claim = scene.claim(scene.publish("other"))
    scene.locks.take("another", claim)
    scene.ledger.settle(claim, keep_ms=LOOK_MS)

    assert [scene.call(name, "another") for name in ("other", "third")] == ["other"] * 2
    assert scene.call("third") == "task"


def test_a_call_is_answered_with_what_goes_on_after_all(scene: Scene) -> None:
    message = scene.publish("holder")
    first = scene.claim(message)
    scene.locks.take("object", first)
    scene.ledger.touch(first, is_concluding=True)
    scene.lose(first)
    assert scene.call("a call") == "holder"

    second = scene.claim(message)
    assert isinstance(scene.ledger.touch(first, is_concluding=True), Fenced)
    assert scene.call("a call") == "holder"
    # And with what takes its time to end, so that nobody waits for ever.
    scene.ledger.touch(second, is_concluding=True)
    epoch = scene.ledger.senders.new_epoch(0)
    assert scene.record(REF, epoch, unique="object") == Concluding()
    scene.ledger.senders.answered(epoch)
    assert scene.call("a call") == "holder"
    assert scene.state("a call") == ABSENT


@pytest.mark.parametrize("how", ["lost for good", "called off"])
def test_a_call_does_not_get_the_object_of_what_is_still_to_be_stopped(
    scene: Scene, how: str
) -> None:
    holder = start(scene, "holder")
    scene.locks.take("object", holder)
    scene.take(holder, max_losses=0 if how == "lost for good" else 1)
    if how == "called off":
        scene.ledger.revoke("holder")

    assert scene.call("a call") is None

    assert scene.client.get(scene.ledger.keys.lock("object")) == b"1:holder"
    # As its worker is dead, nothing of it runs any more.
    scene.kill_worker("me")
    assert scene.call("another call") is None
    assert scene.client.get(scene.ledger.keys.lock("object")) == b"0:another call"
