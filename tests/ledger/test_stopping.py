"""An attempt that was taken as stuck still runs until its worker has stopped it, or is dead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_reliable.ledger import ObjectLocks
from celery_reliable.ledger.answers.tasks import (
    Cancelled,
    Claimed,
    Discarded,
    Ended,
    Fenced,
    Held,
    Postponed,
    Replayed,
    Send,
    Settled,
)
from celery_reliable.ledger.answers.workers import Acknowledged
from celery_reliable.model import Claim
from tests.ledger.scene import LEASE_MS, LOOK_MS, Published, Scene, holding
from tests.support.promises import promise


def taken(scene: Scene, *, max_losses: int = 3) -> tuple[Published, Claim]:
    message = scene.publish()
    claim = scene.claim(message)
    scene.take(claim, max_losses=max_losses)
    return message, claim


def stop(scene: Scene, worker: str = "me") -> None:
    """Have the worker hear what was taken from it, and say that it has stopped it."""
    for claim in scene.workers.heartbeat(worker, lease_ms=LEASE_MS, client_id=0).claims(worker):
        assert isinstance(scene.workers.acknowledge(claim), Acknowledged)


@promise("never-two")
def test_another_copy_of_its_message_does_not_run_beside_it(scene: Scene) -> None:
    message, _ = taken(scene)

    answer = scene.ask(message, "other")

    assert answer == Held("me")
    # That copy is dropped: somebody has to look.
    assert scene.overdue_ids() == ["task"]

    stop(scene)

    assert scene.claim(message, "other").attempt == 2


def test_its_task_is_due_when_it_has_been_stopped(scene: Scene) -> None:
    taken(scene)
    assert scene.overdue_ids() == []

    stop(scene)

    assert scene.overdue_ids() == ["task"]


def test_it_is_not_sent_again_while_its_worker_lives(scene: Scene) -> None:
    message, _ = taken(scene)
    due = scene.seen_due()
    before = scene.snapshot()

    answer = scene.ledger.resend(due, due_in_ms=LOOK_MS)

    assert answer == Held("me")
    assert scene.snapshot() == before
    assert isinstance(scene.ledger.postpone(due, due_in_ms=0), Postponed)
    assert isinstance(scene.ask(message, "other"), Held)


def test_it_is_sent_again_when_its_worker_is_dead(scene: Scene) -> None:
    message, _ = taken(scene)
    scene.kill_worker("me")
    assert isinstance(scene.ask(message, "other"), Held)

    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS), Send)

    assert scene.claim(message, "other").attempt == 2


def test_it_is_sent_again_when_its_worker_is_forgotten(scene: Scene) -> None:
    message, _ = taken(scene)
    assert scene.workers.deregister("me", in_unacked=0)

    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS), Send)

    assert scene.claim(message, "other").attempt == 2


def test_a_zombie_that_stops_it_late_changes_nothing(scene: Scene) -> None:
    message, claim = taken(scene)
    scene.kill_worker("me")
    scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
    successor = scene.claim(message, "other")

    stop(scene)

    assert scene.record_of().token == successor.token
    assert isinstance(scene.ledger.settle(claim), Fenced)
    assert isinstance(scene.ledger.settle(successor), Settled)


def test_a_replay_waits_for_it_too(scene: Scene) -> None:
    taken(scene, max_losses=0)
    answer = scene.ledger.replay("task", epoch="1-replay", message="again", due_in_ms=LOOK_MS)
    assert isinstance(answer, Replayed)
    replayed = Published(scene.foreign().task, "1-replay", scene.ledger.generation)
    assert isinstance(scene.ask(replayed, "other"), Held)

    stop(scene)

    assert scene.claim(replayed, "other").attempt == 2


def test_a_loss_of_another_kind_holds_nobody(scene: Scene) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message), is_taken=True)

    assert scene.claim(message, "other").attempt == 2


def bury(scene: Scene) -> None:
    """Nothing was left of its budget."""
    assert scene.state() == "dead"


def call_off(scene: Scene) -> None:
    assert isinstance(scene.ledger.revoke("task"), Cancelled)


def discard(scene: Scene) -> None:
    assert isinstance(scene.ledger.discard("task"), Discarded)


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


def die(scene: Scene) -> None:
    scene.kill_worker("me")


def be_forgotten(scene: Scene) -> None:
    assert scene.workers.deregister("me", in_unacked=0)


@pytest.mark.parametrize("end", [stop, die, be_forgotten])
@pytest.mark.parametrize(("max_losses", "ending"), ENDINGS)
def test_it_has_its_object_to_the_end_whatever_becomes_of_its_task(
    scene: Scene, max_losses: int, ending: Ending, end: Ending
) -> None:
    locks = ObjectLocks(scene.ledger)
    claim = scene.claim(scene.publish())
    assert locks.take("object", claim) is None
    scene.take(claim, max_losses=max_losses)
    other = scene.claim(scene.publish("another"), "other")

    ending(scene)

    assert locks.take("object", other) == "task"
    # A unique call cannot be answered with what is over: it is published, and takes its turn.
    scene.publish("a call")
    assert locks.take("object", holding(scene, "a call")) is None
    assert locks.take("object", other) == "task"

    end(scene)

    assert locks.take("object", other) is None


@pytest.mark.parametrize(("max_losses", "ending"), ENDINGS)
def test_its_id_that_is_published_anew_waits_for_it_and_counts_on(
    scene: Scene, max_losses: int, ending: Ending
) -> None:
    taken(scene, max_losses=max_losses)
    ending(scene)

    anew = scene.publish()
    assert scene.record_of().losses == 0
    assert isinstance(scene.ask(anew, "other"), Held)
    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS), Held)

    stop(scene)

    assert scene.overdue_ids() == ["task"]
    assert scene.claim(anew, "other").attempt == 2


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_message_that_nobody_recorded_waits_for_it_too(scene: Scene, is_stopped: bool) -> None:
    message, _ = taken(scene)
    call_off(scene)
    if is_stopped:
        stop(scene)

    # What was called off is over.
    assert isinstance(scene.ask(message, "other", content="late"), Ended)
    answer = scene.ask(scene.foreign(), "other", content="as delivered")

    if not is_stopped:
        assert isinstance(answer, Held)
        stop(scene)
        answer = scene.ask(scene.foreign(), "other", content="as delivered")
    assert isinstance(answer, Claimed)
    assert answer.attempt == 2
    assert scene.record_of().message == "as delivered"


def test_the_attempt_itself_frees_its_object_when_it_ends(scene: Scene) -> None:
    locks = ObjectLocks(scene.ledger)
    claim = scene.claim(scene.publish())
    locks.take("object", claim)
    scene.take(claim, max_losses=0)

    assert locks.free("object", claim)

    assert locks.take("object", scene.claim(scene.publish("another"), "other")) is None


def test_of_what_is_dead_the_object_is_freed_when_it_has_been_stopped(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    ObjectLocks(scene.ledger).take("object", claim)
    scene.take(claim, max_losses=0)
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    scene.ledger.announced("task", letter.buried_ms)
    assert scene.overdue_ids() == []

    stop(scene)

    # Its object was freed; nobody has to look.
    assert scene.overdue_ids() == []
    assert not scene.client.exists(scene.ledger.keys.lock("object"))
    assert scene.overdue_ids() == []
    assert not scene.client.exists(scene.ledger.keys.lock("object"))
