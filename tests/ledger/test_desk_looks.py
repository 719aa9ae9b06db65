"""What operators look at stands still while records come and go, and is bounded."""

from __future__ import annotations

import pytest
from celery import Celery

from celery_reliable.model import State
from celery_reliable.operations.pages import Position
from celery_reliable.operations.walks import Kind, Walk
from tests.ledger.scene import Scene


def ids(scene: Scene, kind: Kind | None, *, most: int = 3) -> list[str]:
    """All ids of a kind, by pages of few records."""
    found, cursor = [], ""
    while True:
        walk = Walk(Celery(), scene.ledger, kind=kind, place=Position.of(cursor), most=most)
        found += [look.record.task_id for look in walk]
        assert walk.looked_at <= most
        cursor = walk.cursor
        if not cursor:
            return found


def test_a_record_of_a_later_version_is_passed_over(scene: Scene) -> None:
    scene.publish("a")
    scene.publish("b")
    scene.client.hset(scene.ledger.keys.record("a"), "state", "dreaming")

    assert ids(scene, None) == ["b"]


def test_lists_have_each_task_once(scene: Scene) -> None:
    for name in ("q1", "q2", "q3"):
        scene.publish(name)
    scene.publish("p1", state=State.PARKED)
    # What runs with a limit is due as well.
    for name in ("r1", "r2"):
        scene.claim(scene.publish(name, time_to_run_ms=1000), "other")
    scene.claim(scene.publish("r3"))
    scene.bury(scene.claim(scene.publish("d1")))
    scene.lose(scene.claim(scene.publish("o1")), max_losses=0)

    assert ids(scene, Kind.QUEUED) == ["q1", "q2", "q3"]
    assert ids(scene, Kind.PARKED) == ["p1"]
    assert ids(scene, Kind.RUNNING) == ["r1", "r2", "r3"]
    assert ids(scene, Kind.OWED) == ["o1"]
    assert ids(scene, Kind.DEAD) == ["d1", "o1"]
    assert sorted(ids(scene, None)) == ["o1", "p1", "q1", "q2", "q3", "r1", "r2", "r3"]


@pytest.mark.parametrize("gone", ["none", "last", "all before"])
def test_pages_stand_still(scene: Scene, gone: str) -> None:
    """Of many that are due at one time, which was chosen for the worst case."""
    names = [f"t{number:03}" for number in range(50)]
    for name in names:
        scene.publish(name)
    due = scene.ledger.keys.due
    scene.client.zadd(due, dict.fromkeys(names, 5_000))
    first = scene.ledger.due_after(None, 20)
    assert [one for one, _ in first] == names[:20]
    removed = {"none": [], "last": names[19:20], "all before": names[:20]}[gone]
    if removed:
        scene.client.zrem(due, *removed)
    scene.client.zadd(due, {"before": 4_000, "t0195": 5_000})

    second = scene.ledger.due_after((5_000, names[19]), 100)

    assert [one for one, _ in second] == ["t0195", *names[20:]]
    assert scene.ledger.due_after((6_000, ""), 100) == []
