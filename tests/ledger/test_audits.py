"""What operators did is noted once, and read again."""

from __future__ import annotations

from celery_reliable.ledger.answers.tasks import NotDead, Replayed
from celery_reliable.ledger.answers.workers import Audited
from celery_reliable.ledger.happenings import _AUDIT
from celery_reliable.ledger.transitions import Step
from tests.ledger.scene import LOOK_MS, Scene


def note_again(scene: Scene, token: str) -> None:
    """Send the command of a note once more, as over a connection that was given up."""
    step = Step(_AUDIT, [scene.ledger.keys.audit], [token, '{"act": "x"}', 10_000])
    assert isinstance(scene.ledger._caller.run(step), Audited)


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
    note_again(scene, "same")
    for number in range(60):
        note_again(scene, "same")
        if number >= 30:
            note_again(scene, f"other-{number}")

    # It comes once more when others have moved on.
    for number in range(60):
        note_again(scene, f"later-{number}")
    note_again(scene, "same")

    assert scene.client.xlen(scene.ledger.keys.audit) == 92
    assert len(scene.ledger.audits.latest(1000)) == 91


def test_what_somebody_wrote_by_hand_keeps_nobody_from_the_others(scene: Scene) -> None:
    key = scene.ledger.keys.audit
    scene.ledger.audits.note({"act": "x"})
    for fields in ({"junk": "1"}, {"token": "a", "about": "no JSON", "at_ms": "1"}):
        scene.client.xadd(key, fields)
    scene.client.xadd(key, {"token": "b", "about": "[1]", "at_ms": "1"})

    assert [about for _, about in scene.ledger.audits.latest(10)] == [{"act": "x"}]
    scene.ledger.audits.note({"act": "y"})
    assert scene.ledger.audits.latest(1)[0][1] == {"act": "y"}


def test_a_letter_that_was_buried_again_is_not_the_one_that_was_seen(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    before = scene.snapshot()

    stale = scene.ledger.replay(
        "task", epoch="1-x", message="m", due_in_ms=LOOK_MS, buried_ms=letter.buried_ms - 1
    )

    assert stale == NotDead("dead")
    assert scene.snapshot() == before
    answer = scene.ledger.replay(
        "task", epoch="1-x", message="m", due_in_ms=LOOK_MS, buried_ms=letter.buried_ms
    )
    assert isinstance(answer, Replayed)
