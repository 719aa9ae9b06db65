"""An attempt that was taken as stuck still runs until its worker has stopped it, or is dead."""

from __future__ import annotations

from celery_reliable.model import Claim, Reply
from tests.ledger.scene import LEASE_MS, LOOK_MS, Published, Scene


def taken(scene: Scene, *, max_losses: int = 3) -> tuple[Published, Claim]:
    message = scene.publish()
    claim = scene.claim(message)
    scene.take(claim, max_losses=max_losses)
    return message, claim


def stop(scene: Scene, worker: str = "me") -> None:
    """Have the worker hear what was taken from it, and say that it has stopped it."""
    for claim in scene.workers.heartbeat(worker, lease_ms=LEASE_MS, client_id=0).taken:
        assert scene.workers.acknowledge(claim).reply is Reply.ACKNOWLEDGED


def test_another_copy_of_its_message_does_not_run_beside_it(scene: Scene) -> None:
    message, _ = taken(scene)

    answer = scene.ask(message, "other")

    assert (answer.reply, answer.text(0)) == (Reply.HELD, "me")
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

    assert (answer.reply, answer.text(0)) == (Reply.HELD, "me")
    assert scene.snapshot() == before
    assert scene.ledger.postpone(due, due_in_ms=0).reply is Reply.POSTPONED
    assert scene.ask(message, "other").reply is Reply.HELD


def test_it_is_sent_again_when_its_worker_is_dead(scene: Scene) -> None:
    message, _ = taken(scene)
    scene.kill_worker("me")
    assert scene.ask(message, "other").reply is Reply.HELD

    assert scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS).reply is Reply.SEND

    assert scene.claim(message, "other").attempt == 2


def test_it_is_sent_again_when_its_worker_is_forgotten(scene: Scene) -> None:
    message, _ = taken(scene)
    assert scene.workers.deregister("me", in_room=0)

    assert scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS).reply is Reply.SEND

    assert scene.claim(message, "other").attempt == 2


def test_a_zombie_that_stops_it_late_changes_nothing(scene: Scene) -> None:
    message, claim = taken(scene)
    scene.kill_worker("me")
    scene.ledger.resend(scene.seen_due(), due_in_ms=LOOK_MS)
    successor = scene.claim(message, "other")

    stop(scene)

    assert scene.record_of().token == successor.token
    assert scene.ledger.settle(claim).reply is Reply.FENCED
    assert scene.ledger.settle(successor).reply is Reply.SETTLED


def test_a_replay_waits_for_it_too(scene: Scene) -> None:
    taken(scene, max_losses=0)
    answer = scene.ledger.replay("task", epoch="1-replay", message="again", due_in_ms=LOOK_MS)
    assert answer.reply is Reply.REPLAYED
    replayed = Published(scene.foreign().task, "1-replay", scene.ledger.generation)
    assert scene.ask(replayed, "other").reply is Reply.HELD

    stop(scene)

    assert scene.claim(replayed, "other").attempt == 2


def test_a_loss_of_another_kind_holds_nobody(scene: Scene) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message), is_taken=True)

    assert scene.claim(message, "other").attempt == 2
