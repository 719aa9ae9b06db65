"""What happened is noted and counted for people: bounded, once, and without disturbing anybody."""

from __future__ import annotations

import json
import time
from itertools import count
from typing import Any

import pytest

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger import happenings
from celery_reliable.ledger.answers import Ended, Noted
from celery_reliable.ledger.answers.workers import BeatOfDead, Begun, Renewed
from celery_reliable.ledger.happenings import _NOTE
from celery_reliable.ledger.transitions import Step
from celery_reliable.ledger.workers import _HEARTBEAT
from celery_reliable.operations import happenings as following
from celery_reliable.operations.happenings import Happened, Happenings
from celery_reliable.operations.hours import Hour, last_hours
from celery_reliable.operations.pages import BadCursor
from tests.ledger.scene import LEASE_MS, RestartableScene, Scene, open_ledger
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000


def note(scene: Scene, kind: str = "task_lost", of: str = "", **about: Any) -> None:
    assert scene.ledger.happenings.note(kind, about, of=of)


def beat(scene: Scene, worker: str = "me", **counted: int) -> None:
    named = {name.replace("_", ":"): total for name, total in counted.items()}
    answer = scene.workers.heartbeat(worker, lease_ms=LEASE_MS, client_id=0, counted=named)
    assert isinstance(answer, Renewed)


def now(scene: Scene) -> Hour:
    return last_hours(scene.ledger)[-1]


def hour_of(scene: Scene) -> int:
    """The hour that runs; not one that is about to end."""
    wait_for(lambda: scene.workers.time_ms() % HOUR_MS < HOUR_MS - 5_000, 10, "no hour ends")
    return scene.workers.time_ms() // HOUR_MS


def page(scene: Scene, after: str = "", **wanted: Any) -> Happened:
    return Happenings(scene.ledger).page(after, **wanted)


def test_it_is_read_as_it_was_noted(scene: Scene) -> None:
    hour_of(scene)
    before_ms = scene.workers.time_ms()
    note(scene, "task_lost", "child_lost", name="work", id="x\udcff", losses=2, worker="w" * 500)
    note(scene, "task_lost", "worker_lost", name="work", id="y", losses=1)
    note(scene, "worker_left", worker="one")

    found = page(scene)

    first, second, third = found.items
    assert (first.kind, first.name, first.task_id) == ("task_lost", "work", "x\udcff")
    assert first.about == {"losses": 2, "worker": "w" * 200}
    assert first.sentence == f"2 losses, on {'w' * 200}"
    assert before_ms <= first.at_ms <= scene.workers.time_ms()
    assert second.task_id == "y"
    assert (third.kind, third.name, third.sentence) == ("worker_left", "", "on one")
    assert (found.is_all, found.cursor) == (True, third.cursor)
    assert (now(scene).lost, now(scene).workers_left) == ({"child_lost": 1, "worker_lost": 1}, 1)


def test_hours_are_those_of_a_day_and_the_one_that_runs(scene: Scene) -> None:
    hour = hour_of(scene)
    key = scene.ledger.keys.hours
    note(scene, "task_recovered")
    for ago, times in ((1, 2), (24, 3), (25, 4)):
        scene.client.hset(key, f"{hour - ago} task_buried:lost", times)
    scene.client.hset(key, f"{hour + 1} task_buried:lost", 5)
    scene.client.hset(key, mapping={"junk": "1", f"{hour} of_another_version": "7"})
    scene.client.hset(key, f"{hour} task_skipped", "junk")

    found = last_hours(scene.ledger)

    assert [one.start_ms // HOUR_MS for one in found] == list(range(hour - 24, hour + 1))
    assert [dict(one.buried) for one in found] == [{"lost": 3}, *[{}] * 22, {"lost": 2}, {}]
    assert (found[-1].recovered, found[-1].skipped) == (1, 0)
    assert found[-1].as_dict()["recovered"] == 1


def test_a_storm_of_one_kind_leaves_room_for_the_others(scene: Scene) -> None:
    hour_of(scene)
    wait_for(lambda: scene.workers.time_ms() % 60_000 < 55_000, 15, "no minute ends")
    note(scene, "task_lost", id="before")
    for number in range(130):
        note(scene, "task_skipped", id=str(number))
    note(scene, "task_recovered", id="after")

    found = page(scene, limit=1000).items

    assert [one.task_id for one in found] == ["before", *map(str, range(100)), "after"]
    assert [one.task_id for one in found if one.is_last] == ["99"]
    assert "only counted" in found[100].sentence
    assert now(scene).skipped == 130


def test_the_oldest_go(scene: Scene) -> None:
    keys = scene.ledger.keys
    for _ in range(2_000):
        args = ["task_lost", "", "{}", 100, 10_000]
        step = Step(_NOTE, [keys.happened, keys.hours], args)
        assert isinstance(scene.ledger._caller.run(step), Noted)

    # Whole nodes of a hundred are dropped.
    assert 100 <= scene.client.xlen(keys.happened) <= 300


def test_a_page_is_what_was_wanted_and_goes_on_from_its_cursor(scene: Scene) -> None:
    for number in range(8):
        note(
            scene, ("task_lost", "task_skipped")[number % 2], name=f"a.{number}", id=f"id-{number}"
        )
    scene.client.xadd(scene.ledger.keys.happened, {"junk": "1"})

    last = page(scene, limit=3)
    assert [one.task_id for one in last.items] == ["id-5", "id-6", "id-7"]
    assert page(scene, last.cursor).items == ()

    seen, cursor = [], "0-0"
    while True:
        found = page(scene, cursor, limit=2, kinds=["task_lost"])
        seen += [one.task_id for one in found.items]
        cursor = found.cursor
        if found.is_all:
            break
    assert seen == ["id-0", "id-2", "id-4", "id-6"]
    assert [one.name for one in page(scene, task="a.[34]").items] == ["a.3", "a.4"]
    assert [one.name for one in page(scene, task="id-1").items] == ["a.1"]
    assert len(page(scene, newer_than_seconds=600).items) == 8
    assert page(scene, newer_than_seconds=-600).items == ()
    for cursor in ("x", "1", "1-", "+", "$"):
        with pytest.raises(BadCursor):
            page(scene, cursor)


@pytest.mark.parametrize("is_emptied", [False, True])
def test_it_is_followed_over_a_restart(
    restartable: RestartableScene, monkeypatch: pytest.MonkeyPatch, is_emptied: bool
) -> None:
    monkeypatch.setattr(following, "_COMPARE_SECONDS", 0.2)
    scene = restartable
    note(scene, id="before")
    follower = Happenings(scene.ledger).follow(kinds=["task_lost"], wait_ms=50)
    assert next(follower).items == ()
    note(scene, id="one")
    note(scene, "task_skipped", id="another")
    assert [one.task_id for one in next(follower).items] == ["one"]

    restartable.server.stop()
    if is_emptied:
        for path in restartable.server.directory.rglob("*.aof*"):
            path.unlink(missing_ok=True)
    restartable.server.start()
    assert scene.client.exists(scene.ledger.keys.happened) == (not is_emptied)
    numbers = count(1)

    def happens() -> set[str]:
        number = next(numbers)
        scene.client.xadd(
            scene.ledger.keys.happened,
            {"kind": "task_lost", "about": json.dumps({"id": f"new-{number}"}), "at_ms": "1"},
            # It lost all, and its clock is behind.
            id=f"1-{number}" if is_emptied else "*",
        )
        return {one.task_id for one in next(follower).items}

    seen = wait_for(happens, 20, "what happens then")
    assert seen <= {f"new-{number}" for number in range(next(numbers))}


def test_who_follows_is_told_that_the_ledger_stays_away(restartable: RestartableScene) -> None:
    ledger = open_ledger(restartable.server.url(), "own")
    ledger._caller.patience_seconds = 0.1
    follower = Happenings(ledger).follow(patience_seconds=0.5)
    next(follower)
    restartable.server.stop()
    with pytest.raises(LedgerUnavailable):
        next(follower)
    ledger.close()


def test_counts_of_beats_are_each_counted_once(scene: Scene) -> None:
    hour_of(scene)
    beat(scene, started=3, ended_SUCCESS=2)
    # The next two are lost; the totals go on.
    beat(scene, started=10, ended_SUCCESS=9)
    beat(scene, started=10, ended_SUCCESS=10, ended_FAILURE=1)
    # Nothing that goes back is counted, nor what is not told.
    beat(scene, started=4)
    beat(scene)
    beat(scene, "other", started=1)

    assert (now(scene).started, dict(now(scene).ended)) == (11, {"FAILURE": 1, "SUCCESS": 10})
    assert now(scene).failed == 1

    # A copy of an older call comes late, over another connection.
    keys = scene.ledger.keys
    late = [keys.worker("me"), keys.workers, keys.taken("me"), keys.hours]
    late += [keys.orders, keys.stops("me"), keys.claims("me")]
    with_number = ["me", LEASE_MS, 0, 3, "", "started", 99]
    scene.ledger._caller.run(Step(_HEARTBEAT, late, with_number))
    assert now(scene).started == 11


def test_who_comes_back_under_another_name_begins_anew(scene: Scene) -> None:
    hour_of(scene)
    beat(scene, started=5)
    scene.kill_worker("me")
    dead = scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0, counted={"started": 7})
    assert isinstance(dead, BeatOfDead)
    assert now(scene).started == 5
    scene.workers.deregister("me", in_unacked=0)
    scene.start_worker("me.1")
    beat(scene, "me.1", started=2)
    assert now(scene).started == 7


@pytest.mark.parametrize("damage", ["hours", "happened"])
def test_what_cannot_be_noted_disturbs_nobody(scene: Scene, damage: str) -> None:
    keys = scene.ledger.keys
    scene.client.set(getattr(keys, damage), "a text")

    assert scene.ledger.happenings.note("task_lost", {"id": "x"}) is False
    beat(scene, started=3)
    begun = scene.ledger.passes.begin(
        "mine", interval_ms=0, ttl_ms=60_000, interruption_ms=60_000, lease_ms=LEASE_MS
    )
    assert isinstance(begun, Begun)
    assert isinstance(scene.ledger.passes.end("mine", {"lost": 1}), Ended)
    assert scene.ledger.passes.meta()["report"] == '{"lost": 1}'

    # When it is mended, what beats have counted meanwhile is not lost.
    scene.client.delete(getattr(keys, damage))
    if damage == "hours":
        beat(scene, started=4)
        assert now(scene).started == 4


def test_a_ledger_that_does_not_answer_is_waited_for_once(
    restartable: RestartableScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(restartable.server.url(), "own", reply_timeout_seconds=0.3)
    assert ledger.happenings.note("task_lost", {})
    restartable.server.freeze()
    begun = time.monotonic()
    for _ in range(20):
        assert not ledger.happenings.note("task_lost", {})
    assert time.monotonic() - begun < 3
    restartable.server.thaw()
    monkeypatch.setattr(happenings, "_PAUSE_SECONDS", 0.0)
    # It goes on when the pause is over.
    monkeypatch.setattr(ledger.happenings, "_silent_until", 0.0)
    wait_for(lambda: ledger.happenings.note("task_lost", {}), 10, "it notes again")
    ledger.close()


def test_a_pass_forgets_what_is_past_and_what_is_yet_to_come(scene: Scene) -> None:
    hour = hour_of(scene)
    key = scene.ledger.keys.hours
    kept = {f"{hour - ago} started" for ago in (48, 24, 0, -1)}
    gone = {f"{hour - ago} started" for ago in (49, 500, -2, -9_999)}
    scene.client.hset(key, mapping=dict.fromkeys(kept | gone, 1))

    def run_pass() -> None:
        scene.ledger.passes.begin(
            "mine", interval_ms=0, ttl_ms=60_000, interruption_ms=60_000, lease_ms=LEASE_MS
        )
        scene.ledger.passes.end("mine", {})

    run_pass()
    left = {name.decode() for name in scene.client.hkeys(key)}
    assert left == kept | {"trimmed in"}
    # Two days after the last pass nothing is left.
    assert 47 * HOUR_MS < scene.client.pttl(key) <= 48 * HOUR_MS

    # Once an hour is enough.
    scene.client.hset(key, f"{hour - 49} started", 1)
    run_pass()
    assert scene.client.hexists(key, f"{hour - 49} started")
