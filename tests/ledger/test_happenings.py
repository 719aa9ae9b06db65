"""What happened is noted and counted for people: bounded, once, and without disturbing anybody."""

from __future__ import annotations

import json
import time
from collections import Counter
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
from celery_reliable.operations.happenings import Happenings
from celery_reliable.operations.pages import BadCursor
from celery_reliable.operations.status import Throughputs
from celery_reliable.operations.views import Happened
from tests.ledger.scene import LEASE_MS, RestartableScene, Scene, open_ledger
from tests.support.waiting import wait_for

MINUTE_MS = 60_000


def note(scene: Scene, kind: str = "task_lost", **about: Any) -> None:
    assert scene.ledger.happenings.note(kind, about)


def beat(scene: Scene, worker: str = "me", **counted: int) -> None:
    answer = scene.workers.heartbeat(worker, lease_ms=LEASE_MS, client_id=0, counted=counted)
    assert isinstance(answer, Renewed)


def counted(scene: Scene) -> dict[str, int]:
    """What was counted in the last day."""
    found: Counter[str] = Counter()
    for minute in Throughputs.of(scene.ledger).counted:
        found.update(minute)
    return dict(found)


def page(scene: Scene, after: str = "", **wanted: Any) -> Happened:
    return Happenings(scene.ledger).page(after, **wanted)


def test_it_is_read_as_it_was_noted(scene: Scene) -> None:
    before_ms = scene.workers.time_ms()
    note(scene, "task_lost", name="work", id="x\udcff", losses=2, worker="w" * 500)
    note(scene, "task_lost", name="work", id="y", losses=1)
    note(scene, "worker_left", worker="one")

    found = page(scene)

    first, second, third = found.items
    assert (first.kind, first.name, first.task_id) == ("task_lost", "work", "x\udcff")
    assert first.about == {"losses": 2, "worker": "w" * 200}
    assert first.sentence == f"2 losses, on {'w' * 200}"
    assert first.at is not None
    assert before_ms <= first.at.timestamp() * 1000 <= scene.workers.time_ms()
    assert second.task_id == "y"
    assert (third.kind, third.name, third.sentence) == ("worker_left", "", "on one")
    assert (found.is_all, found.cursor) == (True, third.cursor)


def test_only_losses_are_counted(scene: Scene) -> None:
    for kind in ("task_lost", "worker_left", "task_lost"):
        note(scene, kind)

    assert counted(scene) == {"lost": 2}


def test_minutes_are_those_of_a_day_with_the_one_that_runs(scene: Scene) -> None:
    wait_for(lambda: scene.workers.time_ms() % MINUTE_MS < 50_000, 15, "no minute ends")
    minute = scene.workers.time_ms() // MINUTE_MS
    key = scene.ledger.keys.minutes
    for ago, times in ((0, 1), (1439, 3), (1440, 4), (-1, 5)):
        scene.client.hset(key, f"{minute - ago} lost", times)
    scene.client.hset(key, mapping={"junk": "1", f"{minute} processed": "junk"})

    found = Throughputs.of(scene.ledger).counted

    assert [dict(one) for one in found] == [{"lost": 3}, *[{}] * 1438, {"lost": 1}]


def test_a_slice_is_a_mean_and_the_minute_that_runs_is_not_over() -> None:
    minutes = [{"processed": 60, "failed": 6, "lost": 3}] * 20
    # 15 seconds of a minute have passed.
    found = Throughputs(30_000_015_000, (*minutes[1:], {"processed": 15})).slices(10, 3)

    assert [one.processed for one in found] == [60.0, 60.0, 0.0]
    assert (found[1].failed, found[1].lost, found[1].minutes) == (6.0, 3.0, 10)
    assert [str(one.since)[11:16] for one in found] == ["05:11", "05:01", "04:51"]


def test_a_storm_of_one_kind_leaves_room_for_the_others(scene: Scene) -> None:
    wait_for(lambda: scene.workers.time_ms() % MINUTE_MS < 55_000, 15, "no minute ends")
    note(scene, "task_lost", id="before")
    for number in range(130):
        note(scene, "task_skipped", id=str(number))
    note(scene, "task_recovered", id="after")

    found = page(scene, limit=1000).items

    assert [one.task_id for one in found] == ["before", *map(str, range(100)), "after"]
    assert [one.task_id for one in found if one.is_last] == ["99"]
    assert "are not noted" in found[100].sentence


def test_the_oldest_go(scene: Scene) -> None:
    keys = scene.ledger.keys
    for _ in range(2_000):
        args = ["task_lost", "{}", 100, 10_000]
        step = Step(_NOTE, [keys.happened, keys.minutes], args)
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
    beat(scene, processed=2)
    # The next two are lost; the totals go on.
    beat(scene, processed=9)
    beat(scene, processed=10, failed=1)
    # Nothing that goes back is counted, nor what is not told.
    beat(scene, processed=4)
    beat(scene)
    beat(scene, "other", processed=1)

    assert counted(scene) == {"processed": 11, "failed": 1}

    # A copy of an older call comes late, over another connection.
    keys = scene.ledger.keys
    late = [keys.worker("me"), keys.workers, keys.taken("me"), keys.minutes]
    late += [keys.orders, keys.stops("me"), keys.claims("me")]
    with_number = ["me", LEASE_MS, 0, 3, "", "processed", 99]
    scene.ledger._caller.run(Step(_HEARTBEAT, late, with_number))
    assert counted(scene)["processed"] == 11


def test_who_comes_back_under_another_name_begins_anew(scene: Scene) -> None:
    beat(scene, processed=5)
    scene.kill_worker("me")
    dead = scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0, counted={"processed": 7})
    assert isinstance(dead, BeatOfDead)
    assert counted(scene)["processed"] == 5
    scene.workers.deregister("me", in_unacked=0)
    scene.start_worker("me.1")
    beat(scene, "me.1", processed=2)
    assert counted(scene)["processed"] == 7


@pytest.mark.parametrize("damage", ["minutes", "happened"])
def test_what_cannot_be_noted_disturbs_nobody(scene: Scene, damage: str) -> None:
    keys = scene.ledger.keys
    scene.client.set(getattr(keys, damage), "a text")

    assert scene.ledger.happenings.note("task_lost", {"id": "x"}) is False
    beat(scene, processed=3)
    begun = scene.ledger.passes.begin(
        "mine", interval_ms=0, ttl_ms=60_000, interruption_ms=60_000, lease_ms=LEASE_MS
    )
    assert isinstance(begun, Begun)
    assert isinstance(scene.ledger.passes.end("mine", {"lost": 1}), Ended)
    assert scene.ledger.passes.meta()["report"] == '{"lost": 1}'

    # When it is mended, what beats have counted meanwhile is not lost.
    scene.client.delete(getattr(keys, damage))
    if damage == "minutes":
        beat(scene, processed=4)
        assert counted(scene)["processed"] == 4


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
    wait_for(lambda: scene.workers.time_ms() // MINUTE_MS % 60 != 59, 70, "no hour ends")
    hour = scene.workers.time_ms() // MINUTE_MS // 60 * 60
    key = scene.ledger.keys.minutes
    kept = {f"{hour - ago} lost" for ago in (1440, 60, 0, -120)}
    gone = {f"{hour - ago} lost" for ago in (1441, 9_999, -121, -9_999)}
    scene.client.hset(key, mapping=dict.fromkeys(kept | gone, 1))

    def run_pass() -> None:
        scene.ledger.passes.begin(
            "mine", interval_ms=0, ttl_ms=60_000, interruption_ms=60_000, lease_ms=LEASE_MS
        )
        scene.ledger.passes.end("mine", {})

    run_pass()
    left = {name.decode() for name in scene.client.hkeys(key)}
    assert left == kept | {"trimmed in"}
    # A day after the last pass nothing is left.
    assert 23 * 60 * MINUTE_MS < scene.client.pttl(key) <= 24 * 60 * MINUTE_MS

    # Once an hour is enough.
    scene.client.hset(key, f"{hour - 1441} lost", 1)
    run_pass()
    assert scene.client.hexists(key, f"{hour - 1441} lost")
