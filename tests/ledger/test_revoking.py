"""What is revoked as it runs does not run again, whoever remembers it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_reliable.ledger.answers.tasks import Cancelled, Claimed, Queued, Running, Settled, Stale
from celery_reliable.model import Cause, Claim
from tests.ledger.scene import LOOK_MS, MAX_LOSSES, Scene


def lose(scene: Scene, claim: Claim) -> None:
    answer = scene.ledger.lose(
        claim, Cause.WORKER_LOST, max_losses=MAX_LOSSES, due_in_ms=LOOK_MS, is_taken=True
    )
    assert isinstance(answer, Queued)


def lose_the_last(scene: Scene, claim: Claim) -> None:
    answer = scene.ledger.lose(
        claim, Cause.WORKER_LOST, max_losses=0, due_in_ms=LOOK_MS, is_taken=True
    )
    # It is no poison for that.
    assert isinstance(answer, Queued)


def release(scene: Scene, claim: Claim) -> None:
    scene.ledger.release(claim, due_in_ms=LOOK_MS)


@pytest.mark.parametrize("end", [lose, lose_the_last, release])
def test_it_is_not_claimed_again_and_due_to_be_called_off(
    scene: Scene, end: Callable[[Scene, Claim], None]
) -> None:
    message = scene.publish()
    claim = scene.claim(message)
    assert isinstance(scene.ledger.cancel("task", is_revoked=True), Running)

    end(scene, claim)

    assert isinstance(scene.ask(message), Stale)
    assert scene.overdue_ids() == ["task"]
    assert scene.record_of().is_revoked
    assert isinstance(scene.ledger.cancel("task"), Cancelled)


def test_its_outcome_counts(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.ledger.cancel("task", is_revoked=True)

    assert isinstance(scene.ledger.settle(claim), Settled)


def test_who_expires_or_is_swept_is_not_revoked(scene: Scene) -> None:
    message = scene.publish()
    claim = scene.claim(message)
    scene.ledger.cancel("task", epoch=message.epoch)
    lose(scene, claim)

    assert isinstance(scene.ask(message), Claimed)
