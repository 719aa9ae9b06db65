"""The lock of an object: a record holds it and not a clock, and whatever ends its task frees it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from celery_reliable.ledger import ObjectLocks, answers
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.tasks import Fenced
from celery_reliable.model import Claim, State
from tests.ledger.scene import ABSENT, LOOK_MS, Scene, attempt_zero, holding
from tests.support.promises import promise

KEEP_MS = 60_000


def holder(scene: Scene, object_key: str = "object") -> str | None:
    value = scene.client.get(scene.ledger.keys.lock(object_key))
    return None if value is None else value.decode()


def note(scene: Scene) -> str | None:
    """What the record says that its task has locked."""
    value = scene.client.hget(scene.ledger.keys.record("task"), "object")
    return None if value is None else value.decode()


# Tasks that hold the object.


def queued(scene: Scene) -> Claim:
    """A unique publication that nobody has claimed."""
    scene.publish()
    scene.locks.take("object", holding(scene))
    return attempt_zero()


def running(scene: Scene) -> Claim:
    claim = scene.claim(scene.publish())
    scene.locks.take("object", claim)
    return claim


def running_again(scene: Scene) -> Claim:
    """An older attempt has left its lock, and this one has not come to it."""
    message = scene.publish()
    first = scene.claim(message)
    scene.locks.take("object", first)
    scene.lose(first)
    return scene.claim(message)


def lost(scene: Scene) -> Claim:
    claim = running(scene)
    scene.lose(claim)
    return claim


def waiting(scene: Scene) -> Claim:
    claim = running(scene)
    scene.ledger.replace(claim, due_in_ms=LOOK_MS)
    return claim


def dead_stopping(scene: Scene) -> Claim:
    claim = running(scene)
    scene.take(claim, max_losses=0)
    return claim


def dead(scene: Scene) -> Claim:
    """A dead letter that still notes its object."""
    claim = dead_stopping(scene)
    scene.client.hdel(scene.ledger.keys.record("task"), "stopping", "stopping_on")
    return claim


# What ends a task, or what is left of it.


def outlive(scene: Scene, claim: Claim) -> Answer:
    scene.kill_worker("me")
    assert scene.ledger.is_outlived("task", "me")
    return answers.Outlived()


Stage = Callable[[Scene], Claim]
Ending = Callable[[Scene, Claim], Answer]

ENDINGS: dict[str, Ending] = {
    "settle": lambda scene, claim: scene.ledger.settle(claim),
    "settle_and_keep": lambda scene, claim: scene.ledger.settle(claim, keep_ms=KEEP_MS),
    "bury": lambda scene, claim: scene.bury(claim),
    "lose": lambda scene, claim: scene.lose(claim, max_losses=0),
    "withdraw": lambda scene, _: scene.ledger.withdraw("task", scene.record_of().epoch),
    "cancel": lambda scene, _: scene.ledger.revoke("task"),
    "bury_message": lambda scene, _: scene.bury_message(scene.record_of().epoch),
    "blame": lambda scene, _: scene.blame(scene.record_of().epoch, max_losses=0),
    "discard": lambda scene, _: scene.ledger.discard("task"),
    "acknowledge": lambda scene, claim: scene.workers.acknowledge(claim),
    "outlive": outlive,
}
STAGES: dict[str, tuple[list[Stage], type[Answer]]] = {
    "settle": ([running, running_again], answers.Settled),
    "bury": ([running, running_again], answers.Buried),
    "lose": ([running, running_again], answers.Spent),
    "withdraw": ([queued], answers.Withdrawn),
    "cancel": ([queued, lost, waiting], answers.Cancelled),
    "bury_message": ([queued, lost], answers.Buried),
    "blame": ([queued, lost], answers.Spent),
    "discard": ([dead], answers.Discarded),
    "acknowledge": ([dead_stopping], answers.Acknowledged),
    "outlive": ([dead_stopping], answers.Outlived),
}
ENDS = [
    pytest.param(stage, ending, reply, id=f"{ending}-{stage.__name__}")
    for ending, (stages, reply) in STAGES.items()
    for stage in stages
]


@promise("one-object")
@pytest.mark.parametrize(("stage", "ending", "reply"), ENDS)
def test_whatever_ends_a_task_frees_its_object(
    scene: Scene, stage: Stage, ending: str, reply: type[Answer]
) -> None:
    # As somebody else ends it, who does not know of an object.
    claim = replace(stage(scene), object_key="")
    assert holder(scene) is not None

    assert isinstance(ENDINGS[ending](scene, claim), reply)

    assert (holder(scene), note(scene)) == (None, None)
    assert scene.state() in (ABSENT, "dead")
    assert scene.index_faults() == []


@pytest.mark.parametrize(("stage", "ending", "reply"), ENDS)
def test_what_an_older_version_left_without_a_note_is_anybodys(
    scene: Scene, stage: Stage, ending: str, reply: type[Answer]
) -> None:
    claim = stage(scene)
    scene.forget_object()
    other = scene.claim(scene.publish("other task"), "other")

    assert isinstance(ENDINGS[ending](scene, claim), reply)

    assert scene.locks.take("object", other) is None


@pytest.mark.parametrize("ending", ["settle", "bury", "lose"])
def test_who_knows_the_object_frees_what_an_older_version_did_not_note(
    scene: Scene, ending: str
) -> None:
    claim = replace(running(scene), object_key="object")
    scene.forget_object()

    ENDINGS[ending](scene, claim)

    assert holder(scene) is None


@pytest.mark.parametrize("ending", ["settle", "settle_and_keep", "bury", "lose"])
@pytest.mark.parametrize("has_object", [False, True])
def test_an_attempt_ends_in_one_step_with_its_object_or_without(
    scene: Scene, ending: str, has_object: bool
) -> None:
    claim = scene.claim(scene.publish())
    if has_object:
        scene.locks.take("object", claim)
        claim = replace(claim, object_key="object")
    steps = scene.noted()

    ENDINGS[ending](scene, claim)

    assert len(steps) == 1


@pytest.mark.parametrize("ending", ["cancel", "withdraw", "bury_message", "blame"])
def test_a_task_without_an_object_is_ended_in_one_step(scene: Scene, ending: str) -> None:
    scene.publish()
    steps = scene.noted()

    ENDINGS[ending](scene, attempt_zero())

    assert len(steps) == 1


@pytest.mark.parametrize("ending", ["settle", "bury", "lose"])
def test_an_attempt_that_is_not_the_current_one_frees_nothing(scene: Scene, ending: str) -> None:
    message = scene.publish()
    former = replace(scene.claim(message), object_key="object")
    scene.locks.take("object", former)
    scene.lose(former)
    current = scene.claim(message)
    scene.locks.take("object", current)
    before = scene.snapshot()

    assert isinstance(ENDINGS[ending](scene, former), answers.Fenced)
    assert scene.snapshot() == before


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


def before_call(locks: ObjectLocks, number: int, happen: Callable[[], object]) -> None:
    """Have something happen before the call of that number from now on."""
    call, numbers = locks._caller.call, count(1)

    def late(*args: Any, **options: Any) -> Any:
        if next(numbers) == number:
            happen()
        return call(*args, **options)

    locks._caller.call = late  # type: ignore[method-assign]


@pytest.mark.parametrize("is_publication", [False, True])
def test_a_lock_is_not_taken_over_from_another_than_was_seen(
    scene: Scene, is_publication: bool
) -> None:
    holder, quicker, slower = (start(scene, name) for name in ("holder", "quicker", "slower"))
    locks, slow_locks = ObjectLocks(scene.ledger), ObjectLocks(scene.ledger)
    locks.take("object", holder)
    scene.forget_object("holder")
    scene.ledger.settle(holder)

    # The quicker one takes over while the slower one looks whether the holder lives.
    before_call(slow_locks, 3 if is_publication else 2, lambda: locks.take("object", quicker))

    mine = holding(scene, "slower") if is_publication else slower
    assert slow_locks.take("object", mine) == "quicker"


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
