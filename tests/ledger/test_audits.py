"""What operators did is noted once, and read again."""

from __future__ import annotations

from celery_reliable.ledger.answers.workers import Audited
from celery_reliable.ledger.happenings import _AUDIT
from celery_reliable.ledger.transitions import Step
from tests.ledger.scene import Scene


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
        step = Step(_AUDIT, [scene.ledger.keys.audit], [token, '{"act": "x"}', 10_000])
        assert isinstance(scene.ledger._caller.run(step), Audited)

    assert len(scene.ledger.audits.latest(1000)) == 2
