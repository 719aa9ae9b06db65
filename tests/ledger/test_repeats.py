"""A call whose reply was lost is sent again: it answers as before, and changes nothing more."""

from __future__ import annotations

import pytest

from celery_reliable.model import Claim, Reply, State
from tests.ledger.scene import LEASE_MS, LOOK_MS, Scene
from tests.ledger.stages import STAGES, Steps
from tests.ledger.test_state_machine import MOVES

# Where the first call removes what it would have to be recognised by, the second says so. A caller
# that sent it twice knows from `Answer.is_repeated` that it may have been its own doing.
SECOND_REPLY = {
    "settle": Reply.GONE,
    "withdraw": Reply.GONE,
    "cancel": Reply.GONE,
    "cancel_first": Reply.GONE,
    "revoke": Reply.GONE,
    "discard": Reply.ABSENT,
    # Of two sweepers only one sends. One that never heard that it may is like one that was
    # killed before it did: the task is looked at again.
    "resend": Reply.CHANGED,
    "postpone": Reply.CHANGED,
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
    if step in SECOND_REPLY and first.reply is not Reply.RUNNING:
        assert second.reply is SECOND_REPLY[step]
    else:
        assert second == first


def test_a_claim_repeated_by_the_same_delivery_is_the_same_attempt(scene: Scene) -> None:
    message = scene.publish()
    claim = scene.claim(message, token="one delivery")
    once = scene.snapshot()

    assert scene.claim(message, token="one delivery") == claim
    assert scene.ask(message, token="another delivery").reply is Reply.HELD
    assert scene.snapshot() == once


def test_a_claim_that_made_its_record_is_repeated_like_any_other(scene: Scene) -> None:
    message = scene.foreign()
    assert scene.ask(message, token="one delivery").reply is Reply.UNRECORDED
    claim = scene.claim(message, token="one delivery")

    assert scene.claim(message, token="one delivery") == claim
    assert scene.ask(message, token="one delivery").reply is Reply.CLAIMED


def test_a_late_loss_report_does_not_count_against_a_later_attempt(scene: Scene) -> None:
    message = scene.publish()
    first = scene.claim(message)
    scene.lose(first)
    scene.claim(message)
    once = scene.snapshot()

    assert scene.lose(first).reply is Reply.FENCED
    assert scene.snapshot() == once


def test_a_released_attempt_is_not_lost_as_well(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.ledger.release(claim, due_in_ms=LOOK_MS)
    once = scene.snapshot()

    answer = scene.lose(claim)

    assert (answer.reply, answer.values) == (Reply.QUEUED, (0,))
    assert scene.snapshot() == once


def test_a_publication_that_is_running_by_now_was_still_recorded(scene: Scene) -> None:
    message = scene.publish()
    scene.claim(message)
    once = scene.snapshot()

    assert scene.record(message.task, message.epoch).reply is Reply.RECORDED
    assert scene.snapshot() == once


@pytest.mark.parametrize("state", [State.QUEUED, State.PARKED])
def test_a_repeated_retry_keeps_the_time_it_got(scene: Scene, state: State) -> None:
    claim = scene.claim(scene.publish())
    retry = scene.publish(claim=claim, state=state, due_in_ms=LOOK_MS)
    once = scene.snapshot()

    answer = scene.record(retry.task, retry.epoch, claim=claim, state=state, due_in_ms=1)

    assert answer.reply is Reply.RECORDED
    assert scene.snapshot() == once


def test_what_workers_repeat_is_done_once(scene: Scene) -> None:
    workers = scene.workers
    claim = scene.claim(scene.publish())
    scene.lose(claim, is_taken=True)

    assert workers.acknowledge(claim).reply is Reply.ACKNOWLEDGED
    assert workers.acknowledge(claim).reply is Reply.CHANGED

    scene.kill_worker("me")
    once = scene.snapshot()
    lease = scene.lease("me")
    assert workers.declare(lease, "lapsed", witness_ms=0).reply is Reply.ALREADY
    assert scene.snapshot() == once

    assert workers.deregister("me", in_room=0)
    once = scene.snapshot()
    assert workers.deregister("me", in_room=0)
    assert workers.declare(lease, "lapsed", witness_ms=0).reply is Reply.GONE
    assert scene.snapshot() == once


def test_a_pass_is_begun_and_ended_once(scene: Scene) -> None:
    def begin(interval_ms: int) -> Reply:
        return scene.workers.begin_pass(
            "mine",
            interval_ms=interval_ms,
            ttl_ms=LOOK_MS,
            interruption_ms=LOOK_MS,
            lease_ms=LEASE_MS,
        ).reply

    assert begin(LOOK_MS) is Reply.BEGUN
    once = scene.snapshot()
    assert begin(LOOK_MS) is Reply.NOT_DUE
    assert begin(0) is Reply.BUSY
    assert scene.snapshot() == once

    assert scene.workers.end_pass("mine", {"lost": 1}).reply is Reply.ENDED
    assert scene.workers.end_pass("mine", {"lost": 1}).reply is Reply.OVERTAKEN
    assert begin(0) is Reply.BEGUN


def test_a_heartbeat_tells_what_was_taken_until_it_is_acknowledged(scene: Scene) -> None:
    claims = {scene.claim(scene.publish(f"task {n}")) for n in range(3)}
    for claim in claims:
        scene.lose(claim, is_taken=True)

    def told() -> set[Claim]:
        return set(scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0).taken)

    assert told() == told() == claims
    acknowledged = claims.pop()
    scene.workers.acknowledge(acknowledged)
    assert told() == claims
