"""A call whose reply was lost is sent again: it answers as before, and changes nothing more."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.objects import Standing
from celery_reliable.ledger.answers.tasks import (
    Absent,
    Alone,
    Changed,
    Claimed,
    Ended,
    Gone,
    Held,
    NotCurrent,
    Parked,
    Running,
    Unrecorded,
)
from celery_reliable.ledger.answers.workers import (
    Begun,
    Busy,
    NotDue,
    Overtaken,
)
from tests.ledger.scene import LEASE_MS, LOOK_MS, Scene
from tests.ledger.stages import STAGES, Steps
from tests.ledger.test_state_machine import MOVES

# Where the first call removes what it would have to be recognised by, the second says so. Whoever
# sent one call twice is given the first answer instead (`Transition.repeated`).
SECOND_REPLY = {
    "settle": Gone,
    "withdraw": Gone,
    "cancel": Gone,
    "cancel_first": Gone,
    "revoke": Gone,
    "discard": Absent,
    # Of two sweepers only one sends. One that never heard that it may is like one that was
    # killed before it did: the task is looked at again.
    "resend": Changed,
    "postpone": Changed,
    # The message is dropped either way: the record has a copy.
    "claim_struck": Parked,
    "claim_foreign_struck": Parked,
    "step_up": NotCurrent,
    "park": Changed,
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
    if isinstance(first, Standing):
        assert second == Standing("")
    elif step in SECOND_REPLY and not isinstance(first, (Running, Alone, Held)):
        assert type(second) is SECOND_REPLY[step]
    else:
        assert second == first


def test_a_claim_that_made_its_record_is_repeated_like_any_other(scene: Scene) -> None:
    message = scene.foreign()
    assert isinstance(scene.ask(message, token="one delivery"), Unrecorded)
    claim = scene.claim(message, token="one delivery")

    assert scene.claim(message, token="one delivery") == claim
    assert isinstance(scene.ask(message, token="one delivery"), Claimed)


def test_a_pass_is_begun_and_ended_once(scene: Scene) -> None:
    def begin(interval_ms: int) -> type[Answer]:
        return type(
            scene.ledger.passes.begin(
                "mine",
                interval_ms=interval_ms,
                ttl_ms=LOOK_MS,
                interruption_ms=LOOK_MS,
                lease_ms=LEASE_MS,
            )
        )

    assert begin(LOOK_MS) is Begun
    once = scene.snapshot()
    assert begin(LOOK_MS) is NotDue
    assert begin(0) is Busy
    assert scene.snapshot() == once

    assert isinstance(scene.ledger.passes.end("mine", {"lost": 1}), Ended)
    assert isinstance(scene.ledger.passes.end("mine", {"lost": 1}), Overtaken)
    assert begin(0) is Begun
