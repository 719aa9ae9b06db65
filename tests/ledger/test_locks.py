"""The lock of one object: held by a record and not by a clock, and never freed unasked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from typing import Any

import pytest

from celery_reliable.ledger import ObjectLocks
from celery_reliable.ledger.answers.tasks import Concluding, Fenced, Gone, NotWithdrawn, Withdrawn
from celery_reliable.model import Claim, State
from tests.ledger.scene import ABSENT, LOOK_MS, Scene, attempt_zero, holding, older
from tests.support.promises import promise

THREADS = 8
KEEP_MS = 60_000


def start(scene: Scene, task_id: str) -> Claim:
    return scene.claim(scene.publish(task_id))


def queue_again(scene: Scene, claim: Claim) -> None:
    scene.lose(claim)


def park(scene: Scene, claim: Claim) -> None:
    scene.publish(claim.task_id, claim=claim, state=State.PARKED)


def replace(scene: Scene, claim: Claim) -> None:
    scene.ledger.replace(claim, due_in_ms=LOOK_MS)


def go_on(scene: Scene, claim: Claim) -> None:
    pass


def settle(scene: Scene, claim: Claim) -> None:
    scene.ledger.settle(claim)


def bury(scene: Scene, claim: Claim) -> None:
    scene.bury(claim)


def cancel(scene: Scene, claim: Claim) -> None:
    scene.lose(claim)
    scene.ledger.revoke(claim.task_id)


Happening = Callable[[Scene, Claim], None]


@promise("one-object")
@pytest.mark.parametrize("happening", [go_on, queue_again, park, replace])
def test_a_task_that_lives_holds_its_object(scene: Scene, happening: Happening) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    assert scene.locks.take("object", holder) is None

    happening(scene, holder)
    before = scene.snapshot()

    assert scene.locks.take("object", other) == "holder"
    assert scene.snapshot() == before
    assert scene.locks.take("another object", other) is None


@pytest.mark.parametrize("happening", [settle, bury, cancel])
def test_what_a_task_held_that_is_gone_or_dead_is_taken_over(
    scene: Scene, happening: Happening
) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    scene.locks.take("object", holder)

    happening(scene, holder)

    assert scene.locks.take("object", other) is None
    # Whoever comes late frees nothing of the new holder.
    assert not scene.locks.free("object", holder)
    assert scene.locks.take("object", start(scene, "third")) == "other task"


def test_a_lock_that_is_freed_is_anybodys(scene: Scene) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    scene.locks.take("object", holder)

    assert scene.locks.free("object", holder)
    assert not scene.locks.free("object", holder)
    assert scene.locks.take("object", other) is None


def test_only_the_holder_frees(scene: Scene) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    scene.locks.take("object", holder)
    before = scene.snapshot()

    assert not scene.locks.free("object", other)
    assert scene.snapshot() == before


def test_taking_it_twice_is_taking_it_once(scene: Scene) -> None:
    holder = start(scene, "holder")
    assert scene.locks.take("object", holder) is None
    before = scene.snapshot()

    assert scene.locks.take("object", holder) is None
    assert scene.snapshot() == before


@promise("late-changes-nothing")
def test_a_newer_attempt_walks_back_in_and_the_older_one_stays_out(scene: Scene) -> None:
    message = scene.publish()
    first = scene.claim(message)
    scene.locks.take("object", first)
    scene.lose(first)
    second = scene.claim(message, "other")

    assert scene.locks.take("object", second) is None
    before = scene.snapshot()
    # The older attempt is a zombie by now, and must neither share the object nor free it.
    assert scene.locks.take("object", first) == ""
    assert not scene.locks.free("object", first)
    assert scene.snapshot() == before
    assert scene.locks.free("object", second)


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


@pytest.mark.parametrize("is_publication", [False, True])
def test_a_lock_is_not_taken_over_from_an_id_that_lives_again(
    scene: Scene, is_publication: bool
) -> None:
    former, other = start(scene, "holder"), start(scene, "other task")
    scene.locks.take("object", former)
    scene.forget_object("holder")
    scene.ledger.settle(former)

    def live_again() -> None:
        assert scene.locks.take("object", start(scene, "holder")) is None

    slow_locks = ObjectLocks(scene.ledger)
    before_call(slow_locks, 3 if is_publication else 2, live_again)

    mine = holding(scene, "other task") if is_publication else other
    assert slow_locks.take("object", mine) == "holder"


@pytest.mark.parametrize("is_running", [False, True])
def test_an_attempt_of_a_former_life_frees_nothing(scene: Scene, is_running: bool) -> None:
    former = start(scene, "task")
    scene.locks.take("object", former)
    scene.ledger.settle(former)
    message = scene.publish("task")
    latter = scene.claim(message) if is_running else holding(scene)
    assert scene.locks.take("object", latter) is None
    before = scene.snapshot()

    assert not scene.locks.free("object", former)
    assert scene.snapshot() == before


def test_on_the_ledgers_own_server_a_lock_does_not_expire(scene: Scene) -> None:
    scene.locks.take("object", start(scene, "holder"))

    assert scene.client.pttl(scene.ledger.keys.lock("object")) == -1


def test_an_id_that_looks_like_a_lock_is_an_id(scene: Scene) -> None:
    names = ["1:task", "task:1", "Zürich\n7:", "-1:x"]
    for number, name in enumerate(names):
        claim = start(scene, name)
        assert scene.locks.take(f"object {number}", claim) is None
        assert scene.locks.take(f"object {number}", start(scene, f"other {number}")) == name
        assert scene.locks.free(f"object {number}", claim)


def test_the_older_attempt_of_a_task_that_was_settled_takes_over_nothing(scene: Scene) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message))
    second = scene.claim(message)
    scene.locks.take("object", second)
    scene.ledger.settle(second)
    assert isinstance(scene.ledger.settle(older(second)), Gone)

    other = start(scene, "other task")
    assert scene.locks.take("object", other) is None
    assert not scene.locks.free("object", older(second))
    assert not scene.locks.free("object", second)


def publish(scene: Scene, task_id: str) -> str | None:
    """Record a publication of a unique task and take its object; return who else has it."""
    scene.publish(task_id)
    return scene.locks.take("object", holding(scene, task_id))


def test_a_publication_holds_and_its_attempts_walk_in(scene: Scene) -> None:
    message = scene.publish("holder")
    assert scene.locks.take("object", holding(scene, "holder")) is None
    assert publish(scene, "other task") == "holder"

    first = scene.claim(message)
    assert scene.locks.take("object", first) is None
    # A repeated publication does not put its attempt's lock back.
    once = scene.snapshot()
    assert scene.locks.take("object", holding(scene, "holder")) is None
    assert scene.snapshot() == once
    assert not scene.locks.free("object", attempt_zero("holder"))
    assert scene.locks.free("object", first)


def test_a_publication_that_was_withdrawn_holds_nothing(scene: Scene) -> None:
    message = scene.publish("holder")
    scene.locks.take("object", holding(scene, "holder"))
    scene.ledger.withdraw("holder", message.epoch)

    assert publish(scene, "other task") is None
    assert not scene.locks.free("object", attempt_zero("holder"))
    assert scene.locks.free("object", attempt_zero("other task"))


def test_a_publication_that_somebody_relies_on_is_not_withdrawn(scene: Scene) -> None:
    message = scene.publish("holder")
    scene.locks.take("object", holding(scene, "holder"))
    # An attempt that comes to run decides by itself what becomes of it.
    assert scene.locks.take("object", start(scene, "attempt")) == "holder"
    assert scene.record_of("holder").state is State.QUEUED
    other = scene.publish("other task")
    assert scene.locks.take("object", holding(scene, "other task")) == "holder"

    answer = scene.ledger.withdraw("holder", message.epoch)
    assert answer == NotWithdrawn("queued")
    assert isinstance(scene.ledger.withdraw("other task", other.epoch), Withdrawn)


def test_nobody_relies_on_what_is_dead_or_gone(scene: Scene) -> None:
    dead, gone = start(scene, "dead"), start(scene, "gone")
    scene.locks.take("object", dead)
    scene.locks.take("another object", gone)
    scene.bury(dead)
    scene.ledger.settle(gone)
    before = scene.snapshot()

    scene.publish("task")
    assert scene.locks.take("object", holding(scene)) is None
    assert scene.locks.take("another object", holding(scene)) is None
    # Nothing is left of the one, and nothing noted of the other.
    after = scene.snapshot()
    assert scene.state("gone") == ABSENT
    assert after[scene.ledger.keys.record("dead")] == before[scene.ledger.keys.record("dead")]


def test_what_any_attempt_of_a_task_that_is_over_has_left_is_freed(scene: Scene) -> None:
    for oldest in range(1, 4):
        message = scene.publish(max_losses=9)
        for number in range(1, 4):
            claim = scene.claim(message)
            if number == oldest:
                scene.locks.take("object", claim)
            scene.lose(claim)

        scene.ledger.revoke("task")

        assert not scene.client.exists(scene.ledger.keys.lock("object"))


def test_who_has_no_record_of_his_own_leaves_no_lock_behind(scene: Scene) -> None:
    message = scene.publish()
    zombie = scene.claim(message)
    scene.lose(zombie)
    successor = scene.claim(message, "other")
    assert scene.locks.take("object", zombie) == ""
    scene.ledger.settle(successor)
    assert scene.locks.take("object", zombie) == ""
    # Nor does a publication whose task has ended by the time it asks.
    assert scene.locks.take("object", holding(scene)) is None

    assert not scene.client.exists(scene.ledger.keys.lock("object"))


def test_a_kept_lock_is_nobodys_until_it_expires(scene: Scene) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    scene.locks.take("object", holder)
    scene.ledger.settle(holder, keep_ms=KEEP_MS)

    before = scene.snapshot()
    assert scene.locks.take("object", other) == "holder"
    assert not scene.locks.free("object", other)
    assert not scene.locks.free("object", holder)
    assert scene.snapshot() == before
    key = scene.ledger.keys.lock("object")
    assert 0 < scene.client.pttl(key) <= KEEP_MS

    # As time does it.
    scene.client.pexpire(key, 0)
    assert scene.locks.take("object", other) is None
    assert scene.client.pttl(key) == -1


def test_an_attempt_of_a_former_life_keeps_nothing(scene: Scene) -> None:
    former = start(scene, "task")
    scene.ledger.settle(former)
    latter = start(scene, "task")
    scene.locks.take("object", latter)
    assert former.attempt == latter.attempt

    assert isinstance(scene.ledger.settle(former, keep_ms=KEEP_MS), Fenced)
    assert scene.locks.free("object", latter)


def test_an_id_that_is_published_anew_has_not_kept_what_its_former_life_did(scene: Scene) -> None:
    former = start(scene, "task")
    scene.locks.take("object", former)
    scene.ledger.settle(former, keep_ms=KEEP_MS)

    assert publish(scene, "task") == "task"
    # Nor has any attempt of it, whatever its number.
    scene.ledger.revoke("task")
    message = scene.publish("task")
    scene.lose(scene.claim(message))
    assert scene.locks.take("object", scene.claim(message)) == "task"


def test_a_lock_that_a_former_life_left_does_not_keep_its_id_out(scene: Scene) -> None:
    message = scene.publish("task")
    scene.lose(scene.claim(message))
    second = scene.claim(message)
    scene.locks.take("object", second)
    scene.forget_object()
    scene.ledger.settle(second)

    anew = scene.publish("task")
    assert scene.locks.take("object", holding(scene)) is None
    first = scene.claim(anew)
    assert scene.locks.take("object", first) is None
    assert scene.locks.free("object", first)


def test_a_call_waits_for_the_object_of_a_task_whose_outcome_is_being_stored(scene: Scene) -> None:
    holder = start(scene, "holder")
    scene.locks.take("object", holder)
    assert isinstance(scene.ledger.conclude(holder), Concluding)
    # An attempt that comes to run decides by itself what becomes of it.
    assert scene.locks.take("object", start(scene, "attempt")) == "holder"
    scene.publish("a call")

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(scene.locks.take, "object", holding(scene, "a call"))
        assert not wait([answer], timeout=0.2).done
        scene.bury(holder)
        assert answer.result(5) is None

    assert scene.locks.take("object", start(scene, "another")) == "a call"


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


def begin_anew(scene: Scene, claim: Claim) -> None:
    """With other arguments, and another object."""
    scene.ledger.settle(claim)
    scene.publish()


@pytest.mark.parametrize("happening", [bury, replace, begin_anew])
def test_a_publication_that_asks_late_leaves_no_lock_behind(
    scene: Scene, happening: Happening
) -> None:
    message = scene.publish()
    publication = holding(scene)
    assert scene.locks.take("object", publication) is None
    claim = scene.claim(message)
    scene.locks.take("object", claim)
    scene.locks.free("object", claim)
    happening(scene, claim)
    once = scene.snapshot()

    assert scene.locks.take("object", publication) is None

    assert scene.snapshot() == once
