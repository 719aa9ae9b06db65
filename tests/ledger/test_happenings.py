"""What operators look at: what happened is noted once and bounded, and pages stand still."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_reliable.ledger.answers import Audited
from celery_reliable.model import State
from celery_reliable.operations.history import Happenings
from celery_reliable.operations.listing import Kind, Position, Walk
from celery_reliable.operations.views import Happening
from tests.ledger.scene import Scene
from tests.support.waiting import wait_for

MINUTE_MS = 60_000


def note(scene: Scene, kind: str = "task_lost", **about: Any) -> None:
    assert scene.ledger.happenings.note(kind, about)


def page(scene: Scene, **wanted: Any) -> list[Happening]:
    return Happenings(Celery(), scene.ledger).page(**wanted)


def test_it_is_read_as_it_was_noted(scene: Scene) -> None:
    before_ms = scene.workers.time_ms()
    note(scene, "task_lost", name="work", id="x\udcff", losses=2, worker="w" * 500)
    note(scene, "task_lost", name="work", id="y", losses=1)
    note(scene, "worker_left", worker="one")

    first, second, third = page(scene)
    assert (first.kind, first.name, first.task_id) == ("task_lost", "work", "x\udcff")
    assert first.about == {"losses": 2, "worker": "w" * 200}
    assert first.sentence == f"losses 2, worker {'w' * 200}"
    assert first.at is not None
    assert before_ms <= first.at.timestamp() * 1000 <= scene.workers.time_ms()
    assert second.task_id == "y"
    assert (third.kind, third.name, third.sentence) == ("worker_left", "", "worker one")


def test_each_kind_is_counted_by_name_and_cause_for_so_many_names(scene: Scene) -> None:
    for _ in range(103):
        note(scene, "task_lost", name="work", cause="child_lost")
    scene.client.hset(scene.ledger.keys.counts, mapping={f"x{n}": 1 for n in range(10_000)})
    note(scene, "task_lost", name="work", cause="child_lost")
    note(scene, "task_lost", name="somebody made this up")

    assert scene.ledger.happenings.totals() == {
        ("task_lost", "work", "child_lost", ""): 104,
        ("task_lost", "", "", ""): 1,
    }


def test_a_storm_of_one_kind_leaves_room_for_the_others(scene: Scene) -> None:
    wait_for(lambda: scene.workers.time_ms() % MINUTE_MS < 55_000, 15, "no minute ends")
    note(scene, "task_lost", id="before")
    for number in range(130):
        note(scene, "task_skipped", id=str(number))
    note(scene, "task_recovered", id="after")

    found = page(scene, limit=1000)

    assert [one.task_id for one in found] == ["before", *map(str, range(100)), "after"]
    assert [one.task_id for one in found if one.is_last] == ["99"]
    assert "are not noted" in found[100].sentence


def test_a_note_is_read_as_it_was_written(scene: Scene) -> None:
    before_ms = scene.workers.time_ms()
    scene.ledger.audits.note({"act": "replay", "ids": ["ключ", "\x00"], "done": 3})
    scene.ledger.audits.note({"act": "discard"})

    (_, last), (at_ms, first) = scene.ledger.audits.latest(10)

    assert last == {"act": "discard"}
    assert first == {"act": "replay", "ids": ["ключ", "\x00"], "done": 3}
    assert before_ms <= at_ms <= scene.workers.time_ms()
    assert [about for _, about in scene.ledger.audits.latest(1)] == [last]


def test_a_repeated_note_is_one(scene: Scene) -> None:
    for token in ("same", "other", "same"):
        # As over a connection that was given up.
        step = scene.ledger.calls.audit(token=token, about='{"act": "x"}', most=10_000)
        assert isinstance(scene.ledger._caller.run(step), Audited)

    assert len(scene.ledger.audits.latest(1000)) == 2


def ids(scene: Scene, kind: Kind | None, *, most: int = 3) -> list[str]:
    """All ids of a kind, by pages of few records."""
    found, cursor = [], ""
    while True:
        walk = Walk(scene.ledger, kind=kind, place=Position.of(cursor))
        page = walk.page(most, lambda look: look.record.task_id)
        found += page.items
        assert len(page.items) <= most
        cursor = page.cursor
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
    scene.publish("p1", state=State.WAITING)
    # What runs with a limit is due as well.
    for name in ("r1", "r2"):
        scene.claim(scene.publish(name, time_to_run_ms=1000), "other")
    scene.claim(scene.publish("r3"))
    scene.bury(scene.claim(scene.publish("d1")))
    scene.lose(scene.claim(scene.publish("o1")), max_losses=0)

    assert ids(scene, Kind.QUEUED) == ["q1", "q2", "q3"]
    assert ids(scene, Kind.WAITING) == ["p1"]
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
