"""Passes of the sweeper, and what they and leases make of a clock that has stepped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from celery_reliable.ledger.answers import (
    Answer,
    Asked,
    Begun,
    Busy,
    Declared,
    Grace,
    Known,
    Overtaken,
    Suspected,
)
from celery_reliable.model import State
from tests.ledger.scene import LEASE_MS, Scene
from tests.support.promises import promise
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000
SWEEP_MS = 2000
INTERRUPTION_MS = 6000


def begin(scene: Scene, nonce: str = "mine", *, expected_ms: int | str = "") -> Any:
    return scene.begin_pass(
        nonce, interval_ms=SWEEP_MS, ttl_ms=SWEEP_MS, interruption_ms=INTERRUPTION_MS,
        expected_ms=expected_ms,
    )  # fmt: skip


def let_pass(scene: Scene) -> None:
    """Run a first pass, long enough ago for its grace to be over."""
    assert isinstance(begin(scene), Begun)
    scene.ledger.passes.end("mine", {})
    scene.client.hset(scene.ledger.keys.meta, "grace_ms", 0)
    # Due again.
    note(scene, "passed_ms", -SWEEP_MS)


def note(scene: Scene, name: str, ms: int) -> None:
    """Have a time of the ledger's noted so long from now."""
    scene.client.hset(scene.ledger.keys.meta, name, scene.workers.time_ms() + ms)


def set_back(scene: Scene, by_ms: int = HOUR_MS) -> int:
    """Have the server's clock be set back since the last beat; return what the ledger's showed."""
    shown_ms = scene.workers.time_ms() + by_ms
    scene.client.hset(scene.ledger.keys.clock, mapping={"offset_ms": 0, "latest_ms": shown_ms})
    return shown_ms


@promise("clock-of-redis")
def test_where_the_servers_clock_is_set_back_the_ledgers_goes_on(scene: Scene) -> None:
    let_pass(scene)
    scene.start_worker("me")
    shown_ms = set_back(scene)
    scene.publish("waits", state=State.WAITING, due_in_ms=60_000)
    assert scene.workers.time_ms() >= shown_ms

    scene.beat("me")

    wait_for(lambda: scene.workers.time_ms() > shown_ms, 5, "the ledger's clock to go on")
    assert dues(scene) == pytest.approx({"waits": 60_000}, abs=5000)
    assert scene.lease("me").until_ms == pytest.approx(shown_ms + LEASE_MS, abs=5000)
    assert isinstance(begin(scene), Begun)


@promise("clock-of-redis")
def test_a_pass_is_due_though_nobody_has_kept_the_clock_since(scene: Scene) -> None:
    """No worker lives: only who wants to sweep can let the ledger's clock go on."""
    let_pass(scene)
    assert isinstance(begin(scene), Begun)
    scene.ledger.passes.end("mine", {})
    set_back(scene)
    note(scene, "passed_ms", 0)

    wait_for(lambda: isinstance(begin(scene, "theirs"), Begun), 15, "the next pass")


def test_a_pass_that_expires_too_late_keeps_nobody_from_the_next(scene: Scene) -> None:
    """Keys expire by the server's clock: one that was set back keeps them for longer."""
    let_pass(scene)
    scene.client.set(scene.ledger.keys.begin + "pass", "by another clock", px=HOUR_MS)
    assert isinstance(begin(scene), Begun)
    note(scene, "passed_ms", -SWEEP_MS)
    assert isinstance(begin(scene, "theirs"), Busy)


@promise("clock-of-redis")
@pytest.mark.parametrize("cause", ["lapsed", "connection"])
def test_nobody_is_declared_dead_by_a_clock_that_was_set_forward_during_the_pass(
    scene: Scene, cause: str
) -> None:
    scene.start_worker("me", client_id=7)
    if cause == "connection":
        assert scene.declare(cause) is Suspected
    scene.client.zadd(scene.ledger.keys.workers, {"me": 0})

    assert scene.declare(cause, expected_ms=scene.workers.time_ms() - HOUR_MS) is Grace
    assert scene.declare(cause, expected_ms=scene.workers.time_ms()) is Declared


def dues(scene: Scene) -> dict[str, int]:
    now_ms = scene.workers.time_ms()
    return {task_id: ms - now_ms for task_id, ms in scene.ledger.due_after(None, 100)}


def test_a_step_forward_is_told_from_an_outage(scene: Scene) -> None:
    let_pass(scene)
    note(scene, "passed_ms", -HOUR_MS)
    outage = begin(scene, expected_ms=scene.workers.time_ms())
    assert (outage.stepped_ms, outage.stepped_by_ms) == (None, None)
    scene.ledger.passes.end("mine", {})

    note(scene, "passed_ms", -HOUR_MS)
    step = begin(scene, expected_ms=scene.workers.time_ms() - HOUR_MS)
    assert step.stepped_by_ms == pytest.approx(HOUR_MS, abs=5000)
    scene.ledger.passes.end("mine", {})

    # The passes after it know of it, too: what is due may be so by the step alone.
    note(scene, "passed_ms", -SWEEP_MS)
    later = begin(scene, expected_ms=scene.workers.time_ms())
    assert (later.stepped_ms, later.stepped_by_ms) == (step.stepped_ms, step.stepped_by_ms)


BRIEF_MS = 40


def end(scene: Scene, nonce: str = "mine") -> type[Answer]:
    return type(scene.ledger.passes.end(nonce, {}))


def seen_by(scene: Scene, nonce: str) -> list[str]:
    """Begin a pass; return what it hears of who was seen, nothing while another one runs."""
    answer = scene.begin_pass(nonce)
    return [answer.seen] if isinstance(answer, Begun) else []


def seen_by_the_next(scene: Scene) -> str:
    (seen,) = seen_by(scene, "next")
    scene.ledger.passes.end("next", {})
    return seen


def test_whom_a_pass_has_seen_the_next_one_hears(scene: Scene) -> None:
    scene.begin_pass()
    scene.ledger.passes.end("mine", {"lost": 2}, seen='["one"]')
    assert json.loads(scene.ledger.passes.meta()["report"]) == {"lost": 2}

    assert seen_by_the_next(scene) == '["one"]'
    # That one has said nothing.
    assert seen_by_the_next(scene) == ""


def test_a_pass_that_does_not_end_or_ends_beside_another_has_seen_nobody(scene: Scene) -> None:
    scene.begin_pass()
    scene.ledger.passes.end("mine", {}, seen='["one"]')
    scene.begin_pass("killed", ttl_ms=BRIEF_MS)
    assert wait_for(lambda: seen_by(scene, "third"), 5, "the killed pass to expire") == [""]
    scene.ledger.passes.end("third", {}, seen='["one"]')

    # It was only slow, and may have let something wait for one who was away.
    assert type(scene.ledger.passes.end("killed", {}, seen='["two"]')) is Overtaken

    assert seen_by_the_next(scene) == ""


def test_queues_on_another_server_than_before_are_looked_at_ahead(scene: Scene) -> None:
    look_ahead = scene.ledger.passes.look_ahead

    # Nobody knows of another one.
    assert isinstance(look_ahead(broker="one"), Known)
    assert isinstance(look_ahead(broker="one"), Known)
    assert "ahead_count" not in scene.ledger.passes.meta()
    assert isinstance(look_ahead(broker="two"), Asked)
    meta = scene.ledger.passes.meta()
    assert (meta["ahead_ms"], meta["ahead_count"]) == ("0", "1")
    # It is said until a pass has looked.
    assert isinstance(look_ahead(broker="two"), Known)
    assert scene.ledger.passes.meta() == meta


def test_a_death_is_kept_for_operators_and_has_the_next_pass_look_ahead(scene: Scene) -> None:
    """At what it may have recorded and not sent, from one lease before it was last heard."""
    scene.claim(scene.publish())
    scene.kill_worker("me")

    meta = scene.ledger.passes.meta()
    (death,) = json.loads(meta["deaths"])
    assert (death["worker"], death["cause"], death["claims"]) == ("me", "lapsed", 1)
    assert abs(death["at_ms"] - scene.workers.time_ms()) < LEASE_MS
    # Its lease was made to run out at 0.
    assert (meta["ahead_ms"], meta["ahead_count"]) == (str(-2 * LEASE_MS), "1")

    scene.kill_worker("other")
    meta = scene.ledger.passes.meta()
    assert [one["worker"] for one in json.loads(meta["deaths"])] == ["me", "other"]
    assert meta["ahead_count"] == "2"


def test_who_asked_during_a_pass_is_heard_by_the_next_one(scene: Scene) -> None:
    passes = scene.ledger.passes
    for broker in ("one", "two"):
        passes.look_ahead(broker=broker)
    scene.begin_pass()
    seen = passes.meta()["ahead_count"]
    passes.look_ahead(broker="three")

    passes.end("mine", {}, seen)
    assert passes.meta()["ahead_count"] == "2"

    scene.begin_pass()
    # One that has not looked at all of it asks on.
    passes.end("mine", {}, "")
    assert passes.meta()["ahead_count"] == "2"
    scene.begin_pass()
    passes.end("mine", {}, "2")
    assert not {"ahead_ms", "ahead_count"} & passes.meta().keys()
