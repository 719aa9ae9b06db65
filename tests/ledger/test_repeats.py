"""A call whose reply was lost is sent again: it answers as before, and changes nothing more."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import answers
from celery_reliable.ledger.answers.base import Answer
from tests.ledger.scene import LOOK_MS, Scene
from tests.ledger.stages import STAGES, Steps
from tests.ledger.test_state_machine import MOVES

# Where the first call removes what it would have to be recognised by, the second says so. Whoever
# sent one call twice is given the first answer instead (`Transition.repeated`).
SECOND_REPLY = {
    "settle": answers.Gone,
    "withdraw": answers.Gone,
    "cancel": answers.Gone,
    "cancel_first": answers.Gone,
    "revoke": answers.Gone,
    "discard": answers.Absent,
    # Of two sweepers only one sends. One that never heard that it may is like one that was
    # killed before it did: the task is looked at again.
    "resend": answers.Changed,
    "postpone": answers.Changed,
    # The message is dropped either way: the record has a copy.
    "claim_struck": answers.Parked,
    "claim_foreign_struck": answers.Parked,
    "step_up": answers.NotCurrent,
    "park": answers.Changed,
}


# Each is a sign of life of its own: the time to run begins with the latest.
NEVER_REPEATED = ("touch",)


@pytest.mark.parametrize(
    ("step", "stage"), [move for move in MOVES if move.values[0] not in NEVER_REPEATED]
)
def test_a_repeated_transition_changes_nothing_more(scene: Scene, step: str, stage: str) -> None:
    steps = Steps(scene, STAGES[stage](scene))

    first = getattr(steps, step)()
    once = scene.snapshot()
    second = getattr(steps, step)()

    assert scene.snapshot() == once
    # What runs is not called off by being revoked.
    if isinstance(first, answers.Standing):
        assert second == answers.Standing("")
    elif step in SECOND_REPLY and not isinstance(
        first, (answers.Running, answers.Alone, answers.Held)
    ):
        assert type(second) is SECOND_REPLY[step]
    else:
        assert second == first


def test_a_claim_that_made_its_record_is_repeated_like_any_other(scene: Scene) -> None:
    message = scene.foreign()
    assert isinstance(scene.ask(message, token="one delivery"), answers.Unrecorded)
    claim = scene.claim(message, token="one delivery")

    assert scene.claim(message, token="one delivery") == claim
    assert isinstance(scene.ask(message, token="one delivery"), answers.Claimed)


def test_a_pass_is_begun_and_ended_once(scene: Scene) -> None:
    def begin(interval_ms: int) -> type[Answer]:
        return type(scene.begin_pass(interval_ms=interval_ms))

    assert begin(LOOK_MS) is answers.Begun
    once = scene.snapshot()
    assert begin(LOOK_MS) is answers.NotDue
    assert begin(0) is answers.Busy
    assert scene.snapshot() == once

    assert isinstance(scene.ledger.passes.end("mine", {"lost": 1}), answers.Ended)
    assert isinstance(scene.ledger.passes.end("mine", {"lost": 1}), answers.Overtaken)
    assert begin(0) is answers.Begun
