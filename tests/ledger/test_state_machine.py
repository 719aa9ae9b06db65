"""Every transition is tried on every state of a task: what it answers, and what is left."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.answers.tasks import (
    Fenced,
    Held,
    InUse,
    NoLease,
    NotDead,
    NotWithdrawn,
    Running,
)
from tests.ledger.expected import ANSWERS, EXPECTED
from tests.ledger.scene import Scene
from tests.ledger.stages import STAGES, Steps

CELLS = [
    pytest.param(step, stage, cell, id=f"{step}-{stage}")
    for step, row in EXPECTED.items()
    for stage, cell in row.items()
]
MOVES = [
    pytest.param(step, stage, id=f"{step}-{stage}")
    for step, row in EXPECTED.items()
    for stage, cell in row.items()
    if " > " in cell
]


def test_the_table_has_every_step_and_every_stage() -> None:
    steps = {name for name in vars(Steps) if not name.startswith("_")}

    assert set(EXPECTED) == steps
    for answers in ANSWERS.values():
        named = " ".join(answers.values()).split()
        assert {*named} <= {*STAGES}
        assert len(named) == len({*named})


@pytest.mark.parametrize(("step", "stage", "cell"), CELLS)
def test_each_transition_on_each_state(scene: Scene, step: str, stage: str, cell: str) -> None:
    expected_reply, _, state_after = cell.partition(" > ")
    steps = Steps(scene, STAGES[stage](scene))
    before = scene.snapshot()

    answer = getattr(steps, step)()

    assert answer.word == expected_reply
    after = scene.snapshot()
    if state_after:
        assert scene.state() == state_after
        assert after != before
    else:
        assert after == before
    assert scene.index_faults() == []


@pytest.mark.parametrize("gone", ["never registered", "declared dead", "forgotten"])
@pytest.mark.parametrize("stage", ["absent", "queued", "parked", "lost", "retried", "waiting"])
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


def test_refusals_name_who_or_what_is_in_the_way(scene: Scene) -> None:
    stage = STAGES["overtaken"](scene)
    steps = Steps(scene, stage)

    assert steps.claim() == Held("other")
    assert steps.cancel() == Running("other")
    assert steps.settle() == Fenced("running")
    assert steps.record() == InUse("running", scene.record_of().claimed_ms)
    assert steps.withdraw() == NotWithdrawn("running")
    assert steps.replay() == NotDead("running")
