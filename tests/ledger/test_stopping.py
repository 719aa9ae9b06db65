"""An attempt that was taken as stuck still runs until its worker has stopped it, or is dead."""

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
