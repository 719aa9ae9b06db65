"""Passes of the sweeper: one at a time, not too often, and grace after an interruption."""

from __future__ import annotations

import json

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.workers import Asked, Begun, Known, Overtaken
from tests.ledger.scene import LEASE_MS, Scene
from tests.support.waiting import wait_for

BRIEF_MS = 40


def end(scene: Scene, nonce: str = "mine") -> type[Answer]:
    return type(scene.ledger.passes.end(nonce, {}))


def seen_by_the_next(scene: Scene) -> str:
    answer = scene.begin_pass("next")
    assert isinstance(answer, Begun)
    scene.ledger.passes.end("next", {})
    return answer.seen


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
    wait_for(lambda: isinstance(scene.begin_pass("third"), Begun), 5, "the killed pass to expire")
    scene.ledger.passes.end("third", {}, seen='["one"]')

    # It was only slow, and may have let something wait for one who was away.
    assert type(scene.ledger.passes.end("killed", {}, seen='["two"]')) is Overtaken

    assert seen_by_the_next(scene) == ""


def test_queues_on_another_server_than_before_are_looked_at_ahead(scene: Scene) -> None:
    recognize = scene.ledger.passes.recognize

    # Nobody knows of another one.
    assert isinstance(recognize("one"), Known)
    assert isinstance(recognize("one"), Known)
    assert "ahead_count" not in scene.ledger.passes.meta()
    assert isinstance(recognize("two"), Asked)
    meta = scene.ledger.passes.meta()
    assert (meta["ahead_ms"], meta["ahead_count"]) == ("0", "1")
    # It is said until a pass has looked.
    assert isinstance(recognize("two"), Known)
    assert scene.ledger.passes.meta() == meta


def test_the_next_pass_looks_ahead_from_the_earliest_that_anybody_has_asked_for(
    scene: Scene,
) -> None:
    passes = scene.ledger.passes
    first = passes.look_ahead(ago_ms=1_000)
    assert passes.meta()["ahead_ms"] == str(first.since_ms)
    earlier = passes.look_ahead(ago_ms=5_000)
    assert earlier.since_ms < first.since_ms
    later = passes.look_ahead(ago_ms=0)

    assert later.since_ms == earlier.since_ms
    meta = passes.meta()
    assert (meta["ahead_ms"], meta["ahead_count"]) == (str(earlier.since_ms), "3")


def test_a_death_is_kept_for_operators_and_has_the_next_pass_look_ahead(scene: Scene) -> None:
    """Of what it may have popped and not filed, from one lease before it was last heard."""
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
    passes.look_ahead(ago_ms=1_000)
    scene.begin_pass()
    seen = passes.meta()["ahead_count"]
    passes.look_ahead(ago_ms=0)

    passes.end("mine", {}, seen)
    assert passes.meta()["ahead_count"] == "2"

    scene.begin_pass()
    # One that has not looked at all of it asks on.
    passes.end("mine", {}, "")
    assert passes.meta()["ahead_count"] == "2"
    scene.begin_pass()
    passes.end("mine", {}, "2")
    assert not {"ahead_ms", "ahead_count"} & passes.meta().keys()
