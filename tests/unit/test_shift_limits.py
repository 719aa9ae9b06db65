"""Soft time limits of shifts: whom the main process's signal interrupts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from celery_reliable.broker import Queues
from celery_reliable.pool import Limited, Shift, slots
from celery_reliable.pool.child import limits_heard, run_limited

NUMBER = 7
SLOT = slots[NUMBER]
SHIFT = Shift(
    "token",
    NUMBER,
    Queues("", "", "", (), ()),
    False,
    0,
    1.0,
    frozenset(),
    limits={"it": (1.0, 2.0)},
)


class Interrupted(Exception):
    """What the pool's own handler raises."""


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def interrupt(number: int, frame: Any) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def told_of(which: float) -> bool:
    """Whether a task is interrupted when a signal is for that which began then."""

    def body() -> bool:
        task = SLOT.limited
        assert isinstance(task, Limited)
        assert task[1:] == (3, 1.0, 2.0)
        SLOT.meant = which and task.since + which - 1
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0)
        return False

    with limits_heard(SHIFT):
        try:
            return run_limited(SLOT, 3, (1.0, 2.0), body)
        except Interrupted:
            return True


def test_a_signal_interrupts_the_task_for_which_it_is() -> None:
    assert told_of(1)


def test_it_does_not_interrupt_the_next_one() -> None:
    assert not told_of(0.5)
    # Of the next signal nothing is known: it is for whatever runs.
    assert told_of(0)


def test_a_task_that_has_ended_is_not_there_any_more() -> None:
    assert run_limited(SLOT, 3, (1.0, 2.0), lambda: SLOT.limited) is not None
    assert SLOT.limited is None
