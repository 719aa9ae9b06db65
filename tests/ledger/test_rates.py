"""Moments of limited tasks: each is given once, an interval after the one before."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from celery_reliable.ledger import dues_of
from celery_reliable.ledger.answers import (
    Another,
    Claimed,
    Free,
    Parked,
    ParkedUntil,
    Ripe,
    Send,
    Standing,
)
from celery_reliable.model import Due, Rate
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.ledger.stages import take_place
from tests.support.waiting import wait_for

SECOND_US = 1_000_000
RATE = Rate("app.work", 10 * SECOND_US)


def reserve(scene: Scene, message: Published, rate: Rate = RATE) -> Any:
    """Ask for the moment of a message."""
    return scene.ledger.paces.reserve(message.task.id, message.task.name, rate, epoch=message.epoch)


def ripe(scene: Scene, worker: str = "me", *, late_ms: int = 60_000, limit: int = 10) -> Any:
    """Ask for what may begin."""
    return scene.ledger.paces.ripe(
        ["app.other", "app.work"],
        whose="app",
        worker=worker,
        lease_ms=5_000,
        late_ms=late_ms,
        limit=limit,
    )


def test_the_first_may_begin_and_the_others_wait_an_interval_each(scene: Scene) -> None:
    first, *others = [scene.publish(f"task {n}") for n in range(5)]
    before_ms = scene.workers.time_ms()

    assert isinstance(reserve(scene, first), Free)
    given = [reserve(scene, one) for one in others]

    assert all(isinstance(one, ParkedUntil) for one in given)
    moments = [one.due_ms for one in given]
    assert 0 <= moments[0] - before_ms - 10_000 < 2_000
    assert [b - a for a, b in pairwise(moments)] == [10_000] * 3
    for one, moment in zip(others, moments, strict=True):
        assert scene.state(one.task.id) == "parked"
        assert scene.seen_due(one.task.id) == Due(one.task.id, str(moment))
        assert isinstance(scene.ask(one), Parked)
    assert isinstance(scene.ask(first), Claimed)
    assert scene.index_faults() == []


def test_a_call_that_is_repeated_gets_the_same_moment(scene: Scene) -> None:
    first, second, third = (scene.publish(name) for name in ("first", "second", "third"))
    assert isinstance(reserve(scene, first), Free)
    given = reserve(scene, second)
    once = scene.snapshot()

    assert isinstance(reserve(scene, first), Free)
    assert reserve(scene, second) == given

    assert scene.snapshot() == once
    assert reserve(scene, third).due_ms == given.due_ms + 10_000


def test_those_whose_moment_has_come_are_taken_once(scene: Scene) -> None:
    quick = Rate("app.work", 300_000)
    for one in [scene.publish(f"task {n}") for n in range(4)]:
        reserve(scene, one, quick)
    answer = ripe(scene)
    assert isinstance(answer, Ripe)
    # A moment is rounded up to the next ms.
    assert 0 < answer.wait_ms <= 301
    taken = list(dues_of(answer.ids_and_times))

    def all_taken() -> bool:
        taken.extend(dues_of(ripe(scene).ids_and_times))
        return len(taken) >= 3

    wait_for(all_taken, 5, "their moments have come")
    assert [due.task_id for due in taken] == ["task 1", "task 2", "task 3"]
    assert not dues_of(ripe(scene).ids_and_times)
    for due in taken:
        assert isinstance(scene.ledger.resend(due, due_in_ms=LOOK_MS), Send)


def test_one_worker_looks_after_the_lines_and_others_take_what_is_late(scene: Scene) -> None:
    assert isinstance(ripe(scene, "one"), Ripe)
    assert isinstance(ripe(scene, "two"), Another)
    quick = Rate("app.work", 300_000)
    for one in [scene.publish(f"task {n}") for n in range(4)]:
        reserve(scene, one, quick)
    wait_for(lambda: len(scene.overdue_ids()) == 3, 5, "they are due")

    assert isinstance(ripe(scene, "two"), Another)
    assert len(dues_of(ripe(scene, "two", late_ms=0, limit=2).ids_and_times)) == 2
    # It has taken over.
    assert isinstance(ripe(scene, "one"), Another)
    assert len(dues_of(ripe(scene, "two").ids_and_times)) == 1


def test_what_is_parked_for_its_moment_was_not_sent_in_vain(scene: Scene) -> None:
    reserve(scene, scene.publish("first"))
    message = scene.publish("second")
    for _ in range(2):
        scene.ledger.resend(scene.seen_due("second"), due_in_ms=LOOK_MS)
    scene.ledger.postpone(scene.seen_due("second"), due_in_ms=LOOK_MS, is_unsent=True)
    record = scene.record_of("second")
    assert (record.resends, record.is_unsent) == (1, True)

    assert isinstance(reserve(scene, message), ParkedUntil)

    record = scene.record_of("second")
    assert (record.resends, record.is_unsent) == (0, False)


def goes_by(scene: Scene, held: list[Published], ms: int) -> None:
    """Have what is noted of moments lie back by so much more."""
    keys = scene.ledger.keys
    for one in held:
        key = keys.record(one.task.id)
        epoch, moment_ms, lapses = scene.client.hget(key, "reserved").decode().split()
        scene.client.hset(key, "reserved", f"{epoch} {int(moment_ms) - ms} {lapses}")
    given, moment, interval = map(int, scene.client.get(keys.rate("app.work")).split())
    noted = f"{given - ms * 1000} {moment - ms * 1000} {interval}"
    scene.client.set(keys.rate("app.work"), noted, keepttl=True)


@pytest.mark.untraced("time goes by")
def test_a_moment_that_lies_back_has_lapsed(scene: Scene) -> None:
    quick = Rate("app.work", SECOND_US)
    held = [scene.publish(f"task {n}") for n in range(4)]
    for one in held:
        reserve(scene, one, quick)
    for one in held[1:]:
        scene.ledger.resend(scene.seen_due(one.task.id), due_in_ms=LOOK_MS)
    # Its processes are busy for a moment: they are not late by more than three intervals.
    goes_by(scene, held, 2_500)
    assert isinstance(reserve(scene, held[1], quick), Free)
    goes_by(scene, held, 4_500)

    now_ms = scene.workers.time_ms()
    again = [reserve(scene, one, quick) for one in held]

    assert isinstance(again[0], Free)
    assert [round((one.due_ms - now_ms) / 1000) for one in again[1:]] == [1, 2, 3]
    assert isinstance(reserve(scene, held[0], quick), Free)

    # Twice as long the second time: a task whose queue is slow begins some time.
    scene.ledger.resend(scene.seen_due(held[1].task.id), due_in_ms=LOOK_MS)
    goes_by(scene, held, 5_000)
    assert isinstance(reserve(scene, held[1], quick), Free)


@pytest.mark.untraced("time goes by")
def test_what_waited_in_line_for_its_object_asks_for_no_other_moment(scene: Scene) -> None:
    """It has the place meanwhile, which would be nobody's use."""
    quick = Rate("app.work", 100_000)
    holder = scene.claim(scene.publish("holder"))
    take_place(scene, holder)
    message = scene.publish()
    reserve(scene, message, quick)
    assert isinstance(take_place(scene, scene.claim(message), stands=True), Standing)
    goes_by(scene, [message], 3_000)
    scene.ledger.settle(holder)
    scene.ledger.step_up("object", 1, "task", message.epoch, due_in_ms=LOOK_MS)
    # The others have taken what there was.
    for n in range(3):
        reserve(scene, scene.publish(f"another {n}"), quick)

    assert isinstance(reserve(scene, message, quick), Free)


@pytest.mark.parametrize("raised", [1, 10, 1000])
def test_a_rate_that_is_raised_helps_at_once(scene: Scene, raised: int) -> None:
    for n in range(5):
        reserve(scene, scene.publish(f"task {n}"))
    faster = Rate("app.work", RATE.interval_us // raised)
    now_ms = scene.workers.time_ms()

    answer = reserve(scene, scene.publish("next"), faster)

    # As late as if the others had been given their moments by the new rate.
    assert math.isclose(answer.due_ms, now_ms + 50_000 / raised, abs_tol=2_000)
    assert reserve(scene, scene.publish("last"), faster).due_ms >= answer.due_ms
