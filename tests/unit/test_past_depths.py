"""How deep queues were, from pass to pass."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from celery_reliable.recovery.depths import Depths, depths_of, note_depths


class Broker:
    is_redis = True

    def __init__(self, **depths: int) -> None:
        self.depths = depths
        self.asked: list[str] = []

    def steps(self, queue: str, looked_at: int) -> list[Any]:
        self.asked.append(queue)
        return [SimpleNamespace(depth=self.depths[queue]), SimpleNamespace(depth=0)]


def note(before: dict[str, Any], broker: Any, now_ms: int, *queues: str) -> dict[str, Any]:
    noted = note_depths(json.dumps(before), broker, "redis://one", queues, now_ms, 5_000)
    return {"failed": 0, **noted}


@pytest.mark.parametrize(
    ("found", "grown"),
    [
        ((), None),
        ((5,), None),
        ((1, 2, 3), None),
        ((1, 2, 3, 4, 5), (1, 20.0)),
        ((9, 1, 2, 3, 4, 5), (1, 20.0)),
        ((1, 2, 2, 4, 5), None),
        ((5, 4, 3, 2, 1), None),
    ],
)
def test_a_queue_grows_if_every_look_found_more(
    found: tuple[int, ...], grown: tuple[int, float] | None
) -> None:
    at_ms = tuple(5_000 * number for number in range(len(found)))
    assert Depths(at_ms, found).grown(20) == grown


def test_what_passes_find() -> None:
    report: dict[str, Any] = {}
    for number in range(9):
        broker = Broker(a=number, b=0)
        report = note(report, broker, 1_000_000 + 5_000 * number, "a", "b")
        # Another pass comes too soon to look.
        broker.asked.clear()
        assert note(report, broker, 1_000_001 + 5_000 * number, "a", "b") == report
        assert broker.asked == []

    past = depths_of(report, "redis://one")
    assert past["a"].found == (3, 4, 5, 6, 7, 8)
    assert past["a"].at_ms[0] == 1_015_000
    assert past["b"].grown(1) is None
    assert depths_of(report, "redis://two") == {}


def test_who_does_not_consume_a_queue_looks_at_it_too_while_it_is_not_empty() -> None:
    report = note({}, Broker(a=1, b=0), 5_000, "a", "b")
    report = note(report, Broker(a=2, c=7), 10_000, "c")

    past = depths_of(report, "redis://one")

    assert {name: one.found for name, one in past.items()} == {"a": (1, 2), "c": (7,)}
    assert past["c"].at_ms == (10_000,)


def test_a_clock_that_is_set_back_begins_anew() -> None:
    report = note({}, Broker(a=1), 50_000, "a")
    report = note(report, Broker(a=2), 20_000, "a")

    assert depths_of(report, "redis://one") == {"a": Depths((20_000,), (2,))}


@pytest.mark.parametrize(
    "noted", [7, [], {"redis://one": 7}, {"redis://one": {"at_ms": ["x"], "queues": {"a": [1]}}}]
)
def test_what_another_version_notes_is_not_believed(noted: Any) -> None:
    assert depths_of({"depths": noted}, "redis://one") == {}
    assert depths_of(note({"depths": noted}, Broker(a=1), 5_000, "a"), "redis://one")


def test_another_broker_is_not_connected_to() -> None:
    broker = Broker(a=1)
    broker.is_redis = False

    assert note({}, broker, 5_000, "a") == {"failed": 0}
    assert broker.asked == []


def test_brokers_do_not_mix() -> None:
    report = note({}, Broker(a=1), 5_000, "a")
    other = note_depths(json.dumps(report), Broker(a=9), "redis://two", ["a"], 5_001, 5_000)  # type: ignore[arg-type]

    assert depths_of(other, "redis://one") == {"a": Depths((5_000,), (1,))}
    assert depths_of(other, "redis://two") == {"a": Depths((5_001,), (9,))}
