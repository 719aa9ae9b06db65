"""Moments of ETAs and of limited rates: each is let out once, and one worker does so."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from celery_reliable.ledger import Bell, answers, dues_of
from celery_reliable.model import Due, Rate, State
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.ledger.stages import STAGES, STEPS, Steps, take_place
from tests.support.waiting import wait_for

SECOND_US = 1_000_000
RATE = Rate("app.work", 10 * SECOND_US)
QUEUE = "celery"
WAKER_MS = 5_000


def reserve(scene: Scene, message: Published, wait: Rate | float = RATE, queue: str = "") -> Any:
    """Ask for the moment of a message."""
    return scene.ledger.moments.wait(message.task.id, wait, epoch=message.epoch, queue=queue)


def wake(scene: Scene, worker: str = "me", *, limit: int = 10) -> Any:
    """Let out what may begin."""
    how = {"lease_ms": WAKER_MS, "limit": limit, "due_in_ms": LOOK_MS}
    return scene.ledger.moments.wake(worker, **how)


def woken(scene: Scene, *worker: str, **how: int) -> list[str]:
    """Let out what may begin, and return the ids of what is to be sent."""
    return [due.task_id for due in dues_of(wake(scene, *worker, **how).ids_and_times)]


def waiting(scene: Scene) -> list[str]:
    """The ids of what waits for its moment."""
    return [one.decode() for one in scene.client.zrange(scene.ledger.keys.begin + "later", 0, -1)]


def in_queue(scene: Scene) -> list[str]:
    """The messages of a queue, the foremost last, as they are taken from there."""
    return [one.decode() for one in scene.client.lrange(QUEUE, 0, -1)]


def limited(scene: Scene, *names: str, queue: str = "") -> list[Published]:
    """Publish tasks whose moments have come; another one was free to begin."""
    found = [scene.publish(name) for name in ("free", *names)]
    for one in found:
        reserve(scene, one, queue=queue)
    moments = {name: scene.workers.time_ms() - 1000 + n for n, name in enumerate(names)}
    for key in (scene.ledger.keys.due, scene.ledger.keys.begin + "later"):
        scene.client.zadd(key, moments)
    return found[1:]


def test_the_first_may_begin_and_the_others_wait_an_interval_each(scene: Scene) -> None:
    first, *others = [scene.publish(f"task {n}") for n in range(5)]
    before_ms = scene.workers.time_ms()
    scene.client.hset(scene.ledger.keys.record("task 1"), "since_ms", 1)

    assert isinstance(reserve(scene, first), answers.Free)
    given = [reserve(scene, one) for one in others]

    assert all(isinstance(one, answers.WaitsUntil) for one in given)
    moments = [one.due_ms for one in given]
    assert 0 <= moments[0] - before_ms - 10_000 < 2_000
    assert [b - a for a, b in pairwise(moments)] == [10_000] * 3
    assert scene.record_of("task 1").since_ms >= before_ms
    for one, moment in zip(others, moments, strict=True):
        assert scene.state(one.task.id) == "waiting"
        assert scene.seen_due(one.task.id) == Due(one.task.id, str(moment))
        assert isinstance(scene.ask(one), answers.Waits)
    assert isinstance(scene.ask(first), answers.Claimed)
    assert scene.index_faults() == []


def test_a_call_that_is_repeated_gets_the_same_moment(scene: Scene) -> None:
    first, second, third = (scene.publish(name) for name in ("first", "second", "third"))
    assert isinstance(reserve(scene, first), answers.Free)
    given = reserve(scene, second)
    once = scene.snapshot()

    assert isinstance(reserve(scene, first), answers.Free)
    assert reserve(scene, second) == given

    assert scene.snapshot() == once
    assert reserve(scene, third).due_ms == given.due_ms + 10_000


def test_an_eta_that_is_asked_for_again_is_the_same_until_it_is_let_out(scene: Scene) -> None:
    message = scene.publish()
    given = reserve(scene, message, 60, QUEUE)
    assert math.isclose(given.due_ms, scene.workers.time_ms() + 60_000, abs_tol=2_000)
    once = scene.snapshot()
    assert reserve(scene, message, 5, QUEUE) == given
    assert scene.snapshot() == once
    # Whoever asks for another moment gets none.
    assert isinstance(reserve(scene, message), answers.Free)

    scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
    # A late copy of the call.
    assert reserve(scene, message, 60, QUEUE).due_ms >= given.due_ms
    assert waiting(scene) == ["task"]


def test_what_goes_into_a_list_is_put_there_once_in_the_step_that_lets_it_out(scene: Scene) -> None:
    scene.client.lpush(QUEUE, "there")
    first, second = limited(scene, "first", "second", queue=QUEUE)
    for name, ago in (("b", 20), ("c", 10), ("a", 30)):
        reserve(scene, scene.publish(name), -ago, QUEUE)
    scene.publish("e", state=State.WAITING, due_in_ms=60_000, queue=QUEUE)
    scene.publish("d", state=State.WAITING, due_in_ms=0, queue=QUEUE)

    assert wake(scene) == answers.Woken(WAKER_MS // 2, ())

    # What had its turn once goes in front, and all else behind.
    names = ["d", "c", "b", "a", "there", "second", "first"]
    sent = {name: scene.record_of(name).message for name in names if name != "there"}
    assert in_queue(scene) == [sent.get(name, name) for name in names]
    assert all(isinstance(scene.ask(one), answers.Claimed) for one in (first, second))
    assert waiting(scene) == ["e"]
    assert wake(scene) == answers.Woken(WAKER_MS // 2, ())
    assert len(in_queue(scene)) == len(names)
    assert scene.index_faults() == []


@pytest.mark.parametrize("why", ["no list", "a limited rate", "held"])
def test_what_the_ledger_cannot_put_into_a_queue_is_returned_once(scene: Scene, why: str) -> None:
    queue = "" if why == "no list" else QUEUE
    if why == "a limited rate":
        limited(scene, "task")
    elif why == "held":
        # It was called off as it waited, and published anew while something of it still ran.
        STAGES["stopping"](scene)
        STEPS["park"](Steps(scene, STAGES["absent"](scene)))
        scene.ledger.revoke("task")
        scene.publish(state=State.WAITING, due_in_ms=0, queue=queue)
    else:
        message = STAGES["queued"](scene).message
        reserve(scene, message, 0, queue)
    due = scene.seen_due()

    assert list(dues_of(wake(scene).ids_and_times)) == [due]

    assert (in_queue(scene), waiting(scene), scene.state()) == ([], [], "waiting")
    assert woken(scene) == []
    again = scene.ledger.resend(due, due_in_ms=LOOK_MS)
    assert again.word == ("held" if why == "held" else "send")


@pytest.mark.parametrize("why", ["workers", "postponed", "revoked", "gone"])
def test_what_waits_for_something_else_is_passed_over(scene: Scene, why: str) -> None:
    if why == "revoked":
        # As it ran, and then it was retried.
        claim = scene.claim(scene.publish())
        scene.ledger.revoke("task", if_running="finish")
        scene.publish(state=State.WAITING, due_in_ms=0, claim=claim, queue=QUEUE)
    elif why in ("workers", "postponed"):
        reserve(scene, scene.publish(), 0, QUEUE)
        STEPS["park" if why == "workers" else "postpone"](Steps(scene, STAGES["absent"](scene)))
    else:
        STAGES["settled"](scene)
        scene.client.zadd(scene.ledger.keys.begin + "later", {"task": scene.workers.time_ms()})
    before = scene.state(), scene.seen_due()

    assert woken(scene) == []

    assert (scene.state(), scene.seen_due()) == before
    assert (in_queue(scene), waiting(scene)) == ([], [])


def test_one_worker_lets_tasks_out_and_another_takes_over_as_its_lease_ends(scene: Scene) -> None:
    assert isinstance(wake(scene, "one"), answers.Woken)
    limited(scene, "first", "second", "third")
    left = wake(scene, "two")
    assert isinstance(left, answers.Another)
    assert 0 < left.wait_ms <= WAKER_MS
    scene.client.delete(scene.ledger.keys.begin + "waker")

    assert woken(scene, "two", limit=2) == ["first", "second"]

    # It is the waker now.
    assert isinstance(wake(scene, "one"), answers.Another)
    assert woken(scene, "two") == ["third"]
    assert 0 < scene.client.pttl(scene.ledger.keys.begin + "waker") <= WAKER_MS

    # The server's clock was set back by an hour.
    scene.client.pexpire(scene.ledger.keys.begin + "waker", 3_600_000)
    assert isinstance(wake(scene, "one"), answers.Woken)


def test_the_waker_is_told_when_the_next_moment_comes(scene: Scene) -> None:
    assert wake(scene) == answers.Woken(WAKER_MS // 2, ())
    for name, seconds in (("task", 60), ("sooner", 2)):
        reserve(scene, scene.publish(name), seconds)
    assert 0 < wake(scene).wait_ms <= 2000
    limited(scene, "a", "b")
    answer = wake(scene, limit=1)
    assert (answer.wait_ms, len(answer.ids_and_times)) == (0, 2)


def test_the_bell_rings_once_for_whatever_is_before_all_others(scene: Scene) -> None:
    bell, keys = Bell(scene.ledger.connector, scene.ledger.keys), scene.ledger.keys

    def rings(name: str, seconds: float) -> bool:
        reserve(scene, scene.publish(name), seconds)
        return bool(scene.client.exists(keys.bell))

    assert rings("first", 60)
    assert rings("before it", 50)
    assert scene.client.llen(keys.bell) == 1
    assert 0 < scene.client.pttl(keys.bell) <= 10_000
    wait_for(lambda: bell.wait(0.05) and not scene.client.exists(keys.bell), 5, "it is heard")
    assert not rings("behind it", 55)
    assert rings("before all", 40)
    bell.close()


def test_what_waits_for_its_moment_was_not_sent_in_vain(scene: Scene) -> None:
    reserve(scene, scene.publish("first"))
    message = scene.publish("second")
    for _ in range(2):
        scene.ledger.resend(scene.seen_due("second"), due_in_ms=LOOK_MS)
    scene.ledger.postpone(scene.seen_due("second"), due_in_ms=LOOK_MS, is_unsent=True)
    record = scene.record_of("second")
    assert (scene.resends(), record.is_unsent) == (0, True)

    assert isinstance(reserve(scene, message), answers.WaitsUntil)

    record = scene.record_of("second")
    assert (scene.resends(), record.is_unsent) == (0, False)


def goes_by(scene: Scene, held: list[Published], ms: int) -> None:
    """Have what is noted of moments lie back by so much more."""
    keys = scene.ledger.keys
    for one in held:
        key = keys.record(one.task.id)
        epoch, moment_ms, lapses = scene.client.hget(key, "reserved").decode().split()
        scene.client.hset(key, "reserved", f"{epoch} {int(moment_ms) - ms} {lapses}")
    given, moment, interval = map(int, scene.client.get(keys.begin + "rate:app.work").split())
    noted = f"{given - ms * 1000} {moment - ms * 1000} {interval}"
    scene.client.set(keys.begin + "rate:app.work", noted, keepttl=True)


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
    assert isinstance(reserve(scene, held[1], quick), answers.Free)
    goes_by(scene, held, 4_500)

    now_ms = scene.workers.time_ms()
    again = [reserve(scene, one, quick) for one in held]

    assert isinstance(again[0], answers.Free)
    assert [round((one.due_ms - now_ms) / 1000) for one in again[1:]] == [1, 2, 3]
    assert isinstance(reserve(scene, held[0], quick), answers.Free)

    # Twice as long the second time: a task whose queue is slow begins some time.
    scene.ledger.resend(scene.seen_due(held[1].task.id), due_in_ms=LOOK_MS)
    goes_by(scene, held, 5_000)
    assert isinstance(reserve(scene, held[1], quick), answers.Free)


@pytest.mark.untraced("time goes by")
def test_what_waited_in_line_for_its_object_asks_for_no_other_moment(scene: Scene) -> None:
    """It has the place meanwhile, which would be nobody's use."""
    quick = Rate("app.work", 100_000)
    holder = scene.claim(scene.publish("holder"))
    take_place(scene, holder)
    message = scene.publish()
    reserve(scene, message, quick)
    assert isinstance(take_place(scene, scene.claim(message), stands=True), answers.Standing)
    goes_by(scene, [message], 3_000)
    scene.ledger.settle(holder)
    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS), answers.Send)
    # The others have taken what there was.
    for n in range(3):
        reserve(scene, scene.publish(f"another {n}"), quick)

    assert isinstance(reserve(scene, message, quick), answers.Free)


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
