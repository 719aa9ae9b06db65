"""Every transition is tried on every state of a task: what it answers, and what is left."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import answers
from celery_reliable.ledger.answers.base import Answer
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
from tests.ledger.scene import LOOK_MS, Scene
from tests.ledger.stages import STAGES, STEPS, Steps

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
    assert EXPECTED.keys() == STEPS.keys()
    for row in ANSWERS.values():
        named = " ".join(row.values()).split()
        assert {*named} <= {*STAGES}
        assert len(named) == len({*named})


@pytest.mark.parametrize(("step", "stage", "cell"), CELLS)
def test_each_transition_on_each_state(scene: Scene, step: str, stage: str, cell: str) -> None:
    expected_reply, _, state_after = cell.partition(" > ")
    steps = Steps(scene, STAGES[stage](scene))
    before = scene.snapshot()

    answer = steps.take(step)

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

    assert steps.take("claim") == Held("other")
    assert steps.take("cancel") == Running("other")
    assert steps.take("settle") == Fenced("running")
    assert steps.take("record") == InUse("running", scene.record_of().claimed_ms)
    assert steps.take("withdraw") == NotWithdrawn("running")
    assert steps.take("replay") == NotDead("running")


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

    first = steps.take(step)
    once = scene.snapshot()
    second = steps.take(step)

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
