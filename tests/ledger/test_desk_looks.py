"""What operators look at stands still while records come and go, and is bounded."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import Held
from celery_reliable.model import Claim, State
from celery_reliable.operations.pages import Kind, Position, TaskWalk
from celery_reliable.operations.views import Wait, WaitsFor, as_json
from celery_reliable.operations.waits import Seen, why
from celery_reliable.operations.words import utc
from celery_reliable.operations.workers import Workers
from tests.ledger.scene import Scene
from tests.ledger.stages import STAGES

#: What a task waits for in each state in which it can be found.
KINDS = {
    "queued": Wait.QUEUE,
    "parked": Wait.ETA,
    "running": Wait.RUNNING,
    "held": Wait.RUNNING,
    "overtaken": Wait.RUNNING,
    "lost": Wait.QUEUE,
    "suspected": Wait.QUEUE,
    "stopping": Wait.STOPPING,
    "called_off": Wait.CALLED_OFF,
    "retried": Wait.QUEUE,
    "standing": Wait.OBJECT,
    "waiting": Wait.CANVAS,
    "spent": Wait.OWED,
    "buried": Wait.DEAD,
}


def told(scene: Scene, task_id: str = "task", seen: Seen | None = None) -> WaitsFor:
    look, now_ms = scene.ledger.look(task_id)
    assert look is not None
    return why(look, seen or Seen(), now_ms)


def ids(scene: Scene, kind: Kind | None, *, most: int = 3) -> list[str]:
    """All ids of a kind, by pages of few records."""
    found, cursor = [], ""
    while True:
        walk = TaskWalk(scene.ledger, kind, cursor, most)
        found += [look.record.task_id for look in walk]
        assert walk.looked_at <= most
        cursor = walk.cursor
        if not cursor:
            return found


def test_each_state_has_its_reason(scene: Scene, subtests_of_stages: str) -> None:
    STAGES[subtests_of_stages](scene)

    found = told(scene)

    assert found.kind is KINDS[subtests_of_stages]
    assert found.sentence.endswith(".")
    assert as_json(found)["kind"] == found.kind.value


@pytest.fixture(params=sorted(KINDS))
def subtests_of_stages(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_state_is_among_them() -> None:
    assert KINDS.keys() == STAGES.keys() - {"absent", "settled"}


def test_what_was_lost_and_has_no_message_waits_to_be_sent(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.lose(claim, is_unsent=True)

    found = told(scene)

    assert found.kind is Wait.RESEND
    assert "child_lost" in found.sentence
    assert found.until == utc(int(scene.seen_due().due_ms))


def test_a_suspect_waits_to_be_run_alone(scene: Scene) -> None:
    stage = STAGES["suspected"](scene)
    # I run the other one.
    assert scene.ask(stage.message).word == "alone"

    assert told(scene).kind is Wait.ALONE


def test_a_retry_is_told_from_an_eta(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.publish(state=State.PARKED, claim=claim, due_in_ms=3_600_000)

    found = told(scene, seen=Seen(queue="letters"))

    assert found.kind is Wait.RETRY
    assert "in 1 h" in found.sentence or "in 59 min" in found.sentence
    assert "'letters'" in found.sentence


def test_who_runs_it_is_named(scene: Scene) -> None:
    claim = scene.claim(scene.publish())

    found = told(scene)

    assert (found.worker, found.pid, found.since is not None) == (claim.worker, 1000, True)
    assert "Attempt 1 runs on me in process 1000" in found.sentence


def test_who_waits_for_an_object_names_its_holder(scene: Scene) -> None:
    scene.publish(state=State.PARKED)
    scene.client.hset(scene.ledger.keys.record("task"), "waiting_for", "an object")

    held = Seen(object_key="an object", holder=Held("holder", 1), holder_since_ms=1_000)
    found = told(scene, seen=held)

    assert (found.kind, found.object_key, found.holder) == (Wait.OBJECT, "an object", "holder")
    assert "which holder has since 1970-01-01 00:00:01 UTC" in found.sentence
    assert "is free now" in told(scene, seen=Seen(object_key="an object")).sentence


def test_what_runs_waits_for_no_object_any_more(scene: Scene) -> None:
    message = scene.publish()
    scene.client.hset(scene.ledger.keys.record("task"), "waiting_for", "an object")
    scene.bury(scene.claim(message))

    (look,) = scene.ledger.look_all(["task"])

    assert look is not None
    assert look.waiting_for == ""


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


def test_a_sample_reaches_from_the_first_to_the_last(scene: Scene) -> None:
    due = scene.ledger.keys.due
    scene.client.zadd(due, {f"t{number:04}": number for number in range(1000)})

    total, sample = scene.ledger.sample_due(11)

    assert total == 1000
    assert len(sample) == 11
    assert (sample[0], sample[-1]) == ("t0000", "t0999")
    assert scene.ledger.sample_due(1000)[1] == [f"t{number:04}" for number in range(1000)]


def test_workers_say_what_they_run(scene: Scene) -> None:
    claim = scene.claim(scene.publish("a"))
    scene.claim(scene.publish("b"), "other")
    scene.kill_worker("other")

    class NoBroker:
        is_redis = False

    views = {one.worker: one for one in Workers(scene.ledger, NoBroker()).all()}  # type: ignore[arg-type]

    assert [(one.task_id, one.name, one.pid) for one in views["me"].runs] == [
        ("a", "app.work", 1000)
    ]
    assert views["me"].runs[0].since is not None
    assert (views["me"].state, views["other"].state, views["other"].cause) == (
        "alive",
        "dead",
        "lapsed",
    )
    assert views["me"].claims == 1
    scene.ledger.settle(claim)
    scene.client.zadd(scene.ledger.keys.workers, {"me": 1})
    (me,) = (one for one in Workers(scene.ledger, NoBroker()).all() if one.worker == "me")  # type: ignore[arg-type]
    assert (me.state, me.runs, me.seconds_left < 0) == ("lapsed", (), True)


def test_locks_tell_who_has_them_and_for_whom_they_are_kept(scene: Scene) -> None:
    scene.client.set(scene.ledger.keys.lock("one"), "2:task")
    scene.client.set(scene.ledger.keys.lock("kept"), "kept:task", px=60_000)

    one, kept, free = scene.ledger.holders(["one", "kept", "free"])

    assert one == Held("task", 2)
    assert kept is not None
    assert kept.task_id == "task"
    assert kept.kept_ms is not None
    assert 50_000 < kept.kept_ms <= 60_000
    assert free is None


def test_many_ties_are_no_walk(scene: Scene) -> None:
    """The place in the middle of many of one time is found by bisection: by few questions."""
    due = scene.ledger.keys.due
    names = [f"t{number:06}" for number in range(20_000)]
    scene.client.zadd(due, dict.fromkeys(names, 5_000))
    before = scene.client.info("commandstats").get("cmdstat_zrange", {}).get("calls", 0)

    assert scene.ledger.due_after((5_000, names[9_999]), 2)[0][0] == names[10_000]

    after = scene.client.info("commandstats")["cmdstat_zrange"]["calls"]
    assert after - before <= 17


def test_a_cursor_of_what_runs_leads_on_to_what_waits(scene: Scene) -> None:
    scene.claim(scene.publish("r"))
    scene.publish("q")

    assert [
        one.record.task_id for one in TaskWalk(scene.ledger, None, Position(-1, "r").cursor)
    ] == ["q"]


def test_a_claim_whose_record_went_on_is_nobodys_running_task(scene: Scene) -> None:
    scene.claim(scene.publish("task"))
    scene.client.hset(scene.ledger.keys.claims("other"), "task", "1 1 another token")

    assert ids(scene, Kind.RUNNING) == ["task"]
    assert isinstance(scene.ledger.worker_looks()[0].claims["task"][0], Claim)
