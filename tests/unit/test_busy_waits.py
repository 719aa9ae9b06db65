"""A process that takes its own messages waits without a sleep only where that is shorter."""

from __future__ import annotations

from typing import Any, cast

import pytest

from celery_reliable.app import Reliable
from celery_reliable.broker import Queues
from celery_reliable.context import put_off
from celery_reliable.ledger import NextStep, NextTask
from celery_reliable.ledger.attempts import NextSteps
from celery_reliable.ledger.transitions import Step, Together
from celery_reliable.pool import takings
from celery_reliable.pool.shift import Shift
from celery_reliable.pool.takings import BusyWaits, Takings
from celery_reliable.pool.task_pool import Telling

#: What a task of no length and a reply of a server nearby take, in seconds.
SHORT, NEAR = 0.0001, 0.0001
#: What is longer than both, by far.
LONG = 0.02


class Clock:
    now = 1000.0

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(takings, "time", found)
    return found


def takes(waits: BusyWaits, clock: Clock, *, task: float = SHORT, reply: float = NEAR) -> float:
    """Run a task, ask for the next one, and hear of it; return how long it is waited for busily."""
    clock.now += task
    seconds = waits.seconds()
    clock.now += reply
    waits.was_answered()
    return seconds


def test_only_behind_a_short_task(clock: Clock) -> None:
    waits = BusyWaits()
    # The first comes after nothing.
    assert not takes(waits, clock)
    assert takes(waits, clock)
    assert not takes(waits, clock, task=LONG)
    assert takes(waits, clock)


def test_not_for_longer_than_a_task_would_be_short(clock: Clock) -> None:
    waits = BusyWaits()
    takes(waits, clock)
    assert 0 < takes(waits, clock) < 0.001


def test_a_server_far_away_is_soon_given_up_and_tried_again(clock: Clock) -> None:
    waits = BusyWaits()
    found = [bool(takes(waits, clock, reply=LONG)) for _ in range(1000)]
    # At most a few in a hundred, but not for ever.
    assert 0 < sum(found) < 50
    assert any(found[500:])
    # It has come nearer.
    near = [bool(takes(waits, clock)) for _ in range(1000)]
    assert all(near[300:])


def test_a_late_reply_now_and_then_changes_nothing(clock: Clock) -> None:
    waits = BusyWaits()
    takes(waits, clock)
    found = [takes(waits, clock, reply=LONG if n % 3 else NEAR) for n in range(300)]
    assert all(found)


def test_late_replies_of_long_tasks_tell_nothing(clock: Clock) -> None:
    waits = BusyWaits()
    for _ in range(100):
        takes(waits, clock, task=LONG, reply=LONG)
    assert takes(waits, clock)


class Ledger:
    """Answers each taking; keeps for how long its reply is waited for."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    def next_steps(self, text: str, queues: Any, **kwargs: Any) -> NextSteps:
        return NextSteps(text, [queues.unacked], [queues.name], queues.names)

    def take_next(self, step: NextStep, patience_seconds: float) -> NextTask:
        self.waited.append(step.busy_seconds)
        return NextTask("celery", b"{}")


def test_each_taking_of_a_shift_is_asked_like_that(clock: Clock) -> None:
    ledger = Ledger()
    reliable = type(
        "Reliable", (), {"ledger": ledger, "config": type("C", (), {"lease_seconds": 1})}
    )
    queues = Queues("unacked", "listed", "name", ["celery"], ["celery"])
    shift = Shift("token", 0, queues, False, 0, 1.0, frozenset())
    put_off.clear()
    found = Takings(shift, cast(Reliable, reliable), cast(Telling, None), 1)
    for number in range(3):
        found.next(f"token.{number}", "", "worker")
    assert [bool(one) for one in ledger.waited] == [False, True, True]


def test_what_goes_along_is_waited_for_as_it_asks() -> None:
    settle: Step[Any] = Step(cast(Any, type("T", (), {"name": "settle"})), ["k"], ["a"])
    steps = NextSteps("return 1", ["k"], ["a"], ["celery"])
    code = steps.step("t", done="", filed_ms=1, busy_seconds=0.5)
    assert Together(settle, code).busy_seconds == 0.5
    assert settle.busy_seconds == 0
