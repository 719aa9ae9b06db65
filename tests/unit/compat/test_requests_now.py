"""What a worker runs is told to any thread, while others begin and end."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakSet

import pytest
from celery.worker import state

from celery_reliable.compat.request import fetched_requests, running_requests


class Request:
    """Something that Celery's state may hold."""


@pytest.fixture(autouse=True)
def hurry() -> Iterator[None]:
    """Have threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(
    ("name", "ask"),
    [("active_requests", running_requests), ("reserved_requests", fetched_requests)],
)
def test_all_that_stay_are_told_while_others_come_and_go(
    name: str, ask: Callable[[], list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: WeakSet[Any] = WeakSet()
    monkeypatch.setattr(state, name, held)
    staying = [Request() for _ in range(50)]
    for one in staying:
        held.add(one)
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            passing = [Request() for _ in range(20)]
            for one in passing:
                held.add(one)
            for one in passing:
                held.discard(one)

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(500):
            assert set(staying) <= set(ask())
    finally:
        is_over.set()
        thread.join()
