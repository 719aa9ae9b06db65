"""Every transition is tried on every state of a task: what it answers, and what is left."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.scripts import script
from celery_reliable.model import Reply
from tests.ledger.contracts import Contract
from tests.ledger.scene import Scene
from tests.ledger.stages import STAGES, Steps

# "reply" alone: nothing at all changes. "reply > state": the task is in that state afterwards.
# `mine` is my attempt 1, which is over except in `running`; where I had none it is an attempt 0.
EXPECTED: dict[str, dict[str, str]] = {
    "record": {
        "absent": "recorded > queued",
        "settled": "recorded > queued",
        "queued": "exists",
        "parked": "exists",
        "running": "exists",
        "held": "exists",
        "overtaken": "exists",
        "lost": "exists",
        "retried": "exists",
        "waiting": "recorded > queued",
        "spent": "recorded > queued",
        "buried": "recorded > queued",
    },
    "record_as_attempt": {
        "absent": "fenced",
        "settled": "fenced",
        "queued": "fenced",
        "parked": "fenced",
        "running": "recorded > queued",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "fenced",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "fenced",
        "buried": "fenced",
    },
    "withdraw": {
        "absent": "gone",
        "settled": "gone",
        "queued": "withdrawn > absent",
        "parked": "withdrawn > absent",
        "running": "kept",
        "held": "kept",
        "overtaken": "kept",
        "lost": "kept",
        "retried": "kept",
        "waiting": "kept",
        "spent": "kept",
        "buried": "kept",
    },
    "claim": {
        "absent": "ended",
        "settled": "ended",
        "queued": "claimed > running",
        "parked": "parked",
        "running": "held",
        "held": "held",
        "overtaken": "held",
        "lost": "claimed > running",
        "retried": "stale",
        "waiting": "stale",
        "spent": "dead",
        "buried": "dead",
    },
    "claim_foreign": {
        "absent": "claimed > running",
        "settled": "claimed > running",
        "queued": "stale",
        "parked": "stale",
        "running": "held",
        "held": "held",
        "overtaken": "held",
        "lost": "stale",
        "retried": "stale",
        "waiting": "stale",
        "spent": "dead",
        "buried": "dead",
    },
    "touch": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "touched > running",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "fenced",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "fenced",
        "buried": "fenced",
    },
    "settle": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "settled > absent",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "fenced",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "fenced",
        "buried": "fenced",
    },
    "replace": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "waiting > waiting",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "fenced",
        "retried": "fenced",
        "waiting": "waiting",
        "spent": "fenced",
        "buried": "fenced",
    },
    "lose": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "queued > queued",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "queued",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "buried",
        "buried": "buried",
    },
    "lose_beyond": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "buried > dead",
        "held": "fenced",
        "overtaken": "fenced",
        # The loss was counted once, against the budget as it was then.
        "lost": "queued",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "buried",
        "buried": "buried",
    },
    "release": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "released > queued",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "released",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "fenced",
        "buried": "fenced",
    },
    "bury": {
        "absent": "gone",
        "settled": "gone",
        "queued": "fenced",
        "parked": "fenced",
        "running": "buried > dead",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "fenced",
        "retried": "fenced",
        "waiting": "fenced",
        "spent": "buried",
        "buried": "buried",
    },
    "bury_message": {
        "absent": "buried > dead",
        "settled": "buried > dead",
        "queued": "buried > dead",
        "parked": "fenced",
        "running": "fenced",
        "held": "fenced",
        "overtaken": "fenced",
        "lost": "buried > dead",
        "retried": "buried > dead",
        "waiting": "fenced",
        "spent": "buried",
        "buried": "buried",
    },
    "cancel": {
        "absent": "gone",
        "settled": "gone",
        "queued": "cancelled > absent",
        "parked": "cancelled > absent",
        "running": "running",
        "held": "running",
        "overtaken": "running",
        "lost": "cancelled > absent",
        "retried": "cancelled > absent",
        "waiting": "cancelled > absent",
        "spent": "dead",
        "buried": "dead",
    },
    "cancel_first": {
        "absent": "gone",
        "settled": "gone",
        "queued": "cancelled > absent",
        "parked": "cancelled > absent",
        "running": "running",
        "held": "running",
        "overtaken": "running",
        "lost": "cancelled > absent",
        "retried": "stale",
        # The id is the canvas's now, and its attempt numbers must go on growing.
        "waiting": "stale",
        "spent": "dead",
        "buried": "dead",
    },
    "replay": {
        "absent": "absent",
        "settled": "absent",
        "queued": "not_dead",
        "parked": "not_dead",
        "running": "not_dead",
        "held": "not_dead",
        "overtaken": "not_dead",
        "lost": "not_dead",
        "retried": "not_dead",
        "waiting": "not_dead",
        "spent": "replayed > queued",
        "buried": "replayed > queued",
    },
    "discard": {
        "absent": "absent",
        "settled": "absent",
        "queued": "not_dead",
        "parked": "not_dead",
        "running": "not_dead",
        "held": "not_dead",
        "overtaken": "not_dead",
        "lost": "not_dead",
        "retried": "not_dead",
        "waiting": "not_dead",
        "spent": "discarded > absent",
        "buried": "discarded > absent",
    },
    "announce": {
        "absent": "changed",
        "settled": "changed",
        "queued": "changed",
        "parked": "changed",
        "running": "changed",
        "held": "changed",
        "overtaken": "changed",
        "lost": "changed",
        "retried": "changed",
        "waiting": "changed",
        "spent": "announced > dead",
        # Celery itself stored the failure of an attempt that reported one: nothing is owed.
        "buried": "announced",
    },
    "resend": {
        "absent": "changed",
        "settled": "changed",
        "queued": "send > queued",
        "parked": "send > queued",
        "running": "changed",
        "held": "changed",
        "overtaken": "changed",
        "lost": "send > queued",
        "retried": "send > queued",
        "waiting": "changed",
        "spent": "changed",
        "buried": "changed",
    },
    "postpone": {
        "absent": "changed",
        "settled": "changed",
        "queued": "postponed > queued",
        "parked": "postponed > parked",
        "running": "changed",
        "held": "changed",
        "overtaken": "changed",
        "lost": "postponed > queued",
        "retried": "postponed > queued",
        "waiting": "postponed > waiting",
        "spent": "postponed > dead",
        "buried": "changed",
    },
}

# Steps that are another use of the transition that they begin with.
SCRIPT_OF = {
    "record_as_attempt": "record",
    "claim_foreign": "claim",
    "lose_beyond": "lose",
    "bury_message": "bury",
    "cancel_first": "cancel",
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
