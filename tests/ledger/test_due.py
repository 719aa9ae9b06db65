"""Records at which somebody must look: found in time, sent by one only, and less and less often."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.answers import Answer, Postponed, Send, Stale
from tests.ledger.scene import LOOK_MS, Scene
from tests.support.waiting import wait_for


def resend(scene: Scene) -> int:
    """Send once more; return after how many milliseconds somebody has to look again."""
    answer: Answer = scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
    assert isinstance(answer, Send)
    return int(scene.seen_due().due_ms) - scene.record_of().since_ms


def test_resends_become_rarer_up_to_a_limit(scene: Scene) -> None:
    scene.publish()

    waits = [resend(scene) / LOOK_MS for _ in range(8)]

    assert waits == [1, 2, 4, 8, 16, 32, 64, 64]
    assert scene.resends() == 8


def test_what_was_lost_with_its_message_is_unsent_until_it_is_sent(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.lose(claim, is_unsent=True)
    assert scene.record_of().is_unsent

    scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
    assert not scene.record_of().is_unsent


def test_a_postponed_record_is_found_again(scene: Scene) -> None:
    scene.publish(due_in_ms=0)
    _, [due] = scene.ledger.due(10)
    assert isinstance(scene.ledger.postpone(due, due_in_ms=40), Postponed)
    assert scene.state() == "queued"

    wait_for(lambda: scene.overdue_ids() == ["task"], 5, "the record to be due again")


def test_what_was_revoked_is_looked_at_as_soon_as_its_message_comes_back(scene: Scene) -> None:
    message = scene.publish()
    claim = scene.claim(message, "other")
    scene.ledger.revoke("task", if_running="finish")
    scene.take(claim)
    scene.kill_worker("other")
    assert scene.overdue_ids() == []

    assert scene.ask(message) == Stale()

    assert scene.overdue_ids() == ["task"]


@pytest.mark.parametrize("how", ["replay", "publish", "retry", "claim"])
def test_which_result_was_there_is_noted_of_one_publication(scene: Scene, how: str) -> None:
    message = scene.publish()
    answer = scene.ledger.resend(scene.seen_due(), due_in_ms=0, stored="nothing")
    assert isinstance(answer, Send)
    assert scene.record_of().stored == "nothing"

    if how in ("replay", "publish"):
        scene.bury_message(message.epoch)
    if how == "replay":
        scene.replay()
    elif how == "publish":
        scene.publish()
    else:
        claim = scene.claim(message)
        if how == "retry":
            scene.publish(claim=claim)

    assert scene.state() == ("running" if how == "claim" else "queued")
    assert scene.record_of().stored == ""


def test_what_could_not_be_sent_is_not_counted(scene: Scene) -> None:
    """Also of one that was claimed meanwhile, and so begins to count anew."""
    message = scene.publish(due_in_ms=0)
    answer = scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
    assert isinstance(answer, Send)
    assert scene.resends() == 1
    scene.ledger.postpone(scene.seen_due(), due_in_ms=LOOK_MS, is_unsent=True)
    record = scene.record_of()
    assert (scene.resends(), record.is_unsent) == (0, True)

    scene.lose(scene.claim(message))
    scene.ledger.postpone(scene.seen_due(), due_in_ms=LOOK_MS, is_unsent=True)
    assert scene.resends() == 0
