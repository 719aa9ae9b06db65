"""Every transition is tried on every state of a task: what it answers, and what is left."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.scripts import script
from celery_reliable.model import Reply
from tests.ledger.contracts import Contract
from tests.ledger.expected import EXPECTED
from tests.ledger.scene import Scene
from tests.ledger.stages import STAGES, Steps

# Steps that are another use of the transition that they begin with.
SCRIPT_OF = {
    "record_as_attempt": "record",
    "record_as_heir": "record",
    "claim_foreign": "claim",
    "lose_beyond": "lose",
    "bury_message": "bury",
    "bury_foreign": "bury",
    "cancel_first": "cancel",
    "revoke": "cancel",
}

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
    assert all(set(row) == set(STAGES) for row in EXPECTED.values())


def promised_values(step: str, reply: str) -> int | None:
    """How many values the script's header promises with a reply."""
    name = SCRIPT_OF.get(step, step)
    return Contract.of(name, script(name).text).documented()[reply]


@pytest.mark.parametrize(("step", "stage", "cell"), CELLS)
def test_each_transition_on_each_state(scene: Scene, step: str, stage: str, cell: str) -> None:
    expected_reply, _, state_after = cell.partition(" > ")
    steps = Steps(scene, STAGES[stage](scene))
    before = scene.snapshot()

    answer = getattr(steps, step)()

    assert answer.reply is Reply(expected_reply)
    assert len(answer.values) == promised_values(step, expected_reply)
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
        assert scene.workers.deregister("me", in_room=0)
    before = scene.snapshot()

    answer = scene.ask(message, worker, content="as delivered")

    assert answer.reply is Reply.NO_LEASE
    assert scene.snapshot() == before


def test_refusals_name_who_or_what_is_in_the_way(scene: Scene) -> None:
    stage = STAGES["overtaken"](scene)
    steps = Steps(scene, stage)

    assert steps.claim().text(0) == "other"
    assert steps.cancel().text(0) == "other"
    assert steps.settle().text(0) == "running"
    assert steps.record().text(0) == "running"
    assert steps.withdraw().text(0) == "running"
    assert steps.replay().text(0) == "running"
