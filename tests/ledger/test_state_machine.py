"""Every transition is tried on every state of a task, and once more.

The model judges what each answers and what is left (`tests.support.traces`).
"""

from __future__ import annotations

import pytest

from celery_reliable.ledger import answers
from celery_reliable.ledger.answers import Answer, NoLease
from tests.ledger.scene import LOOK_MS, Scene
from tests.ledger.stages import STAGES, STEPS, Steps

#: A sign of life: the time to run begins with the latest.
NEVER_REPEATED = ("touch",)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("step", STEPS)
def test_each_transition_on_each_state(scene: Scene, step: str, stage: str) -> None:
    """What it answers and writes, and what it answers as it is repeated, the model judges."""
    steps = Steps(scene, STAGES[stage](scene))

    steps.take(step)

    once = scene.snapshot()
    steps.take(step)
    assert step in NEVER_REPEATED or scene.snapshot() == once
    assert scene.index_faults() == []


IN_ONE_STEP = {
    "running": ("settle", "bury", "lose_beyond"),
    "awaited": ("settle", "settle_and_keep", "bury", "lose_beyond", "free"),
    "awaited_dead": ("acknowledge", "discard"),
    "locked": ("cancel", "withdraw", "bury_message"),
    "locked_letter": ("discard",),
}


@pytest.mark.parametrize(
    ("stage", "step"), [(stage, one) for stage, steps in IN_ONE_STEP.items() for one in steps]
)
def test_a_task_ends_in_one_step_with_its_object_or_without(
    scene: Scene, stage: str, step: str
) -> None:
    steps = Steps(scene, STAGES[stage](scene))
    calls = scene.noted()

    steps.take(step)

    assert len(calls) == 1


@pytest.mark.parametrize("gone", ["never registered", "declared dead", "forgotten"])
@pytest.mark.parametrize("stage", ["absent", "queued", "timed", "lost", "retried", "replaced"])
def test_a_worker_without_a_lease_claims_nothing(scene: Scene, stage: str, gone: str) -> None:
    message = STAGES[stage](scene).message
    worker = "me" if gone != "never registered" else "stranger"
    if gone != "never registered":
        scene.kill_worker("me")
    if gone == "forgotten":
        assert scene.workers.deregister("me", in_unacked=0)
    before = scene.snapshot()

    answer = scene.ask(message, worker, content="as delivered")

    assert isinstance(answer, NoLease)
    assert scene.snapshot() == before


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
