"""What is stopped or revoked as it runs: nothing runs beside it, and it does not run again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_reliable.ledger import answers
from celery_reliable.model import Claim
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.support.promises import promise


def taken(scene: Scene, *, max_losses: int = 3) -> tuple[Published, Claim]:
    message = scene.publish()
    claim = scene.claim(message)
    scene.take(claim, max_losses=max_losses)
    return message, claim


def stop(scene: Scene, worker: str = "me") -> None:
    """Have the worker hear what was taken from it, and say that it has stopped it."""
    for claim in scene.beat(worker).claims(worker):
        assert isinstance(scene.workers.acknowledge(claim), answers.Acknowledged)


@promise("never-two")
def test_another_copy_of_its_message_does_not_run_beside_it(scene: Scene) -> None:
    message, _ = taken(scene)

    answer = scene.ask(message, "other")

    assert answer == answers.Held("me")
    # That copy is dropped: somebody has to look.
    assert scene.overdue_ids() == ["task"]

    stop(scene)

    assert scene.claim(message, "other").attempt == 2


def bury(scene: Scene) -> None:
    """Nothing was left of its budget."""
    assert scene.state() == "dead"


def call_off(scene: Scene) -> None:
    assert isinstance(scene.ledger.revoke("task"), answers.Cancelled)


def discard(scene: Scene) -> None:
    assert isinstance(scene.ledger.discard("task"), answers.Discarded)


def call_off_again(scene: Scene) -> None:
    """It was published anew, and called off once more."""
    scene.ledger.discard("task")
    scene.publish()
    scene.ledger.revoke("task")


Ending = Callable[[Scene], None]
ENDINGS = [
    pytest.param(0, bury, id="bury"),
    pytest.param(0, discard, id="discard"),
    pytest.param(3, call_off, id="call_off"),
    pytest.param(0, call_off_again, id="call_off_again"),
]


@pytest.mark.parametrize(("max_losses", "ending"), ENDINGS)
def test_its_id_that_is_published_anew_waits_for_it_and_counts_on(
    scene: Scene, max_losses: int, ending: Ending
) -> None:
    taken(scene, max_losses=max_losses)
    ending(scene)

    anew = scene.publish()
    assert scene.record_of().losses == 0
    assert isinstance(scene.ask(anew, "other"), answers.Held)
    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS), answers.Held)

    stop(scene)

    assert scene.overdue_ids() == ["task"]
    assert scene.claim(anew, "other").attempt == 2


def lose(scene: Scene, claim: Claim) -> None:
    assert isinstance(scene.lose(claim, is_taken=True), answers.Queued)


def lose_the_last(scene: Scene, claim: Claim) -> None:
    # It is no poison for that.
    assert isinstance(scene.lose(claim, max_losses=0, is_taken=True), answers.Queued)


def release(scene: Scene, claim: Claim) -> None:
    scene.ledger.release(claim, due_in_ms=LOOK_MS)


@pytest.mark.parametrize("end", [lose, lose_the_last, release])
def test_it_is_not_claimed_again_and_due_to_be_called_off(
    scene: Scene, end: Callable[[Scene, Claim], None]
) -> None:
    message = scene.publish()
    claim = scene.claim(message)
    assert isinstance(scene.ledger.revoke("task", is_noted=True), answers.Running)

    end(scene, claim)

    assert isinstance(scene.ask(message), answers.Stale)
    assert scene.overdue_ids() == ["task"]
    assert scene.record_of().is_revoked
    assert isinstance(scene.ledger.revoke("task"), answers.Cancelled)


def stay(scene: Scene) -> None:
    """Its next publication waits for a worker."""
    scene.publish()


def run(scene: Scene) -> None:
    scene.claim(scene.publish())


def be_foreign(scene: Scene) -> None:
    """Somebody without the package has published it."""
    scene.claim(scene.foreign())


@promise("nothing-lost")
@pytest.mark.parametrize("go_on", [stay, run, be_foreign])
def test_a_revocation_that_comes_late_means_nothing_that_was_published_after(
    scene: Scene, go_on: Callable[[Scene], None]
) -> None:
    scene.publish()
    calls = scene.noted()
    assert isinstance(scene.ledger.revoke("task", is_noted=True), answers.Cancelled)
    (revoke,) = calls
    go_on(scene)
    once = scene.snapshot()

    revoke()

    assert scene.snapshot() == once
