"""The lock of one object: held by a record and not by a clock, and never freed unasked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from celery_reliable.ledger import ObjectLocks
from celery_reliable.model import Claim, Reply, State
from tests.ledger.scene import LOOK_MS, Scene, older

THREADS = 8


@pytest.fixture
def locks(scene: Scene) -> ObjectLocks:
    return ObjectLocks(scene.ledger)


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
    scene.ledger.cancel(claim.task_id)


Happening = Callable[[Scene, Claim], None]


@pytest.mark.parametrize("happening", [go_on, queue_again, park, replace])
def test_a_task_that_lives_holds_its_object(
    scene: Scene, locks: ObjectLocks, happening: Happening
) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    assert locks.take("object", holder) is None

    happening(scene, holder)
    before = scene.snapshot()

    assert locks.take("object", other) == "holder"
    assert scene.snapshot() == before
    assert locks.take("another object", other) is None


@pytest.mark.parametrize("happening", [settle, bury, cancel])
def test_what_a_task_held_that_is_gone_or_dead_is_taken_over(
    scene: Scene, locks: ObjectLocks, happening: Happening
) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    locks.take("object", holder)

    happening(scene, holder)

    assert locks.take("object", other) is None
    # Whoever comes late frees nothing of the new holder.
    assert not locks.free("object", holder)
    assert locks.take("object", start(scene, "third")) == "other task"


def test_a_lock_that_is_freed_is_anybodys(scene: Scene, locks: ObjectLocks) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    locks.take("object", holder)

    assert locks.free("object", holder)
    assert not locks.free("object", holder)
    assert locks.take("object", other) is None


def test_only_the_holder_frees(scene: Scene, locks: ObjectLocks) -> None:
    holder, other = start(scene, "holder"), start(scene, "other task")
    locks.take("object", holder)
    before = scene.snapshot()

    assert not locks.free("object", other)
    assert scene.snapshot() == before


def test_taking_it_twice_is_taking_it_once(scene: Scene, locks: ObjectLocks) -> None:
    holder = start(scene, "holder")
    assert locks.take("object", holder) is None
    before = scene.snapshot()

    assert locks.take("object", holder) is None
    assert scene.snapshot() == before


def test_a_newer_attempt_walks_back_in_and_the_older_one_stays_out(
    scene: Scene, locks: ObjectLocks
) -> None:
    message = scene.publish()
    first = scene.claim(message)
    locks.take("object", first)
    scene.lose(first)
    second = scene.claim(message, "other")

    assert locks.take("object", second) is None
    before = scene.snapshot()
    # The older attempt is a zombie by now, and must neither share the object nor free it.
    assert locks.take("object", first) == "task"
    assert not locks.free("object", first)
    assert scene.snapshot() == before
    assert locks.free("object", second)


def test_of_many_that_see_a_lock_to_be_taken_over_one_gets_it(
    scene: Scene, locks: ObjectLocks
) -> None:
    holder = start(scene, "holder")
    locks.take("object", holder)
    scene.ledger.settle(holder)
    claims = [start(scene, f"task {n}") for n in range(THREADS)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda claim: locks.take("object", claim), claims))

    winners = [claim.task_id for claim, holder in zip(claims, found, strict=True) if not holder]
    assert len(winners) == 1
    assert {holder for holder in found if holder} == set(winners)


def test_a_lock_is_not_taken_over_from_another_than_was_seen(scene: Scene) -> None:
    holder, quicker, slower = (start(scene, name) for name in ("holder", "quicker", "slower"))
    locks, slow_locks = ObjectLocks(scene.ledger), ObjectLocks(scene.ledger)
    locks.take("object", holder)
    scene.ledger.settle(holder)
    find = scene.ledger.find

    # The quicker one takes over while the slower one looks whether the holder lives.
    def find_slowly(task_id: str, **options: float | None) -> object:
        if task_id == "holder":
            scene.ledger.find = find  # type: ignore[method-assign]
            assert locks.take("object", quicker) is None
        return find(task_id, **options)

    scene.ledger.find = find_slowly  # type: ignore[method-assign,assignment]

    assert slow_locks.take("object", slower) == "quicker"


def test_on_the_ledgers_own_server_a_lock_does_not_expire(scene: Scene, locks: ObjectLocks) -> None:
    locks.take("object", start(scene, "holder"))

    assert scene.client.pttl(scene.ledger.keys.lock("object")) == -1


def test_an_id_that_looks_like_a_lock_is_an_id(scene: Scene, locks: ObjectLocks) -> None:
    names = ["1:task", "task:1", "Zürich\n7:", "-1:x"]
    for number, name in enumerate(names):
        claim = start(scene, name)
        assert locks.take(f"object {number}", claim) is None
        assert locks.take(f"object {number}", start(scene, f"other {number}")) == name
        assert locks.free(f"object {number}", claim)


def test_the_older_attempt_of_a_task_that_was_settled_takes_over_nothing(
    scene: Scene, locks: ObjectLocks
) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message))
    second = scene.claim(message)
    locks.take("object", second)
    scene.ledger.settle(second)
    assert scene.ledger.settle(older(second)).reply is Reply.GONE

    other = start(scene, "other task")
    assert locks.take("object", other) is None
    assert not locks.free("object", older(second))
    assert not locks.free("object", second)
