"""An attempt shows that it is not stuck."""

from __future__ import annotations

from celery_reliable.ledger.answers.tasks import Changed, Fenced, Gone, Touched
from celery_reliable.model import Cause
from tests.ledger.scene import LOOK_MS, Scene


def test_a_touch_moves_the_time_at_which_somebody_looks(scene: Scene) -> None:
    claim = scene.claim(scene.publish())

    assert isinstance(scene.ledger.touch(claim, time_to_run_ms=0), Touched)
    assert scene.overdue_ids() == ["task"]
    assert isinstance(scene.ledger.touch(claim, time_to_run_ms=LOOK_MS), Touched)
    assert scene.overdue_ids() == []


def test_an_attempt_that_is_not_current_moves_nothing(scene: Scene) -> None:
    message = scene.publish()
    late = scene.claim(message)
    scene.ledger.lose(late, Cause.STUCK, max_losses=3, due_in_ms=LOOK_MS)
    current = scene.claim(message)

    assert isinstance(scene.ledger.touch(late, time_to_run_ms=0), Fenced)
    assert scene.overdue_ids() == []
    scene.ledger.settle(current)
    assert isinstance(scene.ledger.touch(current, time_to_run_ms=0), Gone)
    assert scene.overdue_ids() == []


def test_what_was_claimed_since_it_was_seen_overdue_is_not_stuck(scene: Scene) -> None:
    message = scene.publish(due_in_ms=0)
    seen = scene.seen_due()
    claim = scene.claim(message)

    answer = scene.ledger.lose(
        claim, Cause.STUCK, max_losses=3, due_in_ms=LOOK_MS, due_ms=seen.due_ms
    )

    assert isinstance(answer, Changed)
    assert scene.state() == "running"
