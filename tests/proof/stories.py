"""Short stories for faults of scripts that no step of the state machine shows."""

from __future__ import annotations

from dataclasses import replace

from celery_reliable.model import Rate, TaskRef
from tests.ledger.scene import LEASE_MS, LOOK_MS, MAX_LOSSES, Scene
from tests.ledger.stages import take_place


def who_is_declared_dead_asks_for_a_claim(scene: Scene) -> None:
    message = scene.publish()
    scene.kill_worker("me")
    scene.ask(message, "me", content="as delivered")


def a_message_comes_when_its_task_has_ended(scene: Scene) -> None:
    message = scene.publish()
    scene.ledger.settle(scene.claim(message))
    scene.ask(message, content="as delivered")


def a_claim_comes_late(scene: Scene) -> None:
    message = scene.publish()
    for token in ("first", "second"):
        scene.ledger.release(scene.claim(message, token=token), due_in_ms=LOOK_MS)
        scene.ask(message, token="first")


def a_replay_is_repeated(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    for _ in range(2):
        scene.ledger.replay("task", epoch="1-replay", message="again", due_in_ms=LOOK_MS)


def an_object_is_free_when_its_task_has_ended(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.locks.take("object", claim)
    scene.ledger.settle(claim)


def a_publication_is_repeated_while_its_task_lives_and_when_it_has_ended(
    scene: Scene,
) -> None:
    for _ in range(2):
        scene.record(TaskRef("another", "app.work"), "0-of-no-sender")
    message = scene.publish()
    scene.ledger.settle(scene.claim(message))
    scene.record(message.task, message.epoch)


def an_attempt_that_is_over_publishes_its_task_again(scene: Scene) -> None:
    message = scene.publish()
    first = scene.claim(message)
    scene.record(
        message.task, scene.ledger.senders.new_epoch(1), claim=replace(first, token="another")
    )
    scene.lose(first)
    scene.claim(message)
    scene.record(message.task, scene.ledger.senders.new_epoch(1), claim=first)


def a_claim_is_repeated(scene: Scene) -> None:
    message = scene.publish()
    for _ in range(2):
        scene.ask(message, token="same")


def an_order_has_ended(scene: Scene) -> None:
    order = scene.order()
    scene.ledger.orders.resume(order.id, by="ann")
    scene.ask(scene.publish(), strikes=(order.id,))


def losses_are_all_spent(scene: Scene) -> None:
    message = scene.publish()
    for _ in range(MAX_LOSSES + 1):
        scene.lose(scene.claim(message))


def a_letter_was_buried_again_since_it_was_seen(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    scene.ledger.discard("task", buried_ms=1)


def a_worker_has_renewed_since_it_was_seen(scene: Scene) -> None:
    seen = scene.lease("me")
    scene.workers.heartbeat("me", lease_ms=2 * LEASE_MS, client_id=1)
    scene.workers.declare(seen, "connection", witness_ms=0)


def two_sweepers_have_seen_the_same(scene: Scene) -> None:
    scene.publish()
    seen = scene.seen_due()
    for _ in range(2):
        scene.ledger.resend(seen, due_in_ms=2 * LOOK_MS)


def an_object_is_free_when_its_task_is_dead(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.locks.take("object", claim)
    scene.bury(claim)


def an_object_is_anothers(scene: Scene) -> None:
    holder, other = (scene.claim(scene.publish(name)) for name in ("holder", "other"))
    scene.locks.take("object", holder)
    scene.locks.take("object", other)
    scene.locks.free("object", other)


def an_object_is_a_later_attempts(scene: Scene) -> None:
    message = scene.publish()
    first = scene.claim(message)
    scene.lose(first)
    scene.locks.take("object", scene.claim(message))
    scene.locks.take("object", first)


def a_place_is_taken_and_waited_for(scene: Scene) -> None:
    holder, first, last = (scene.claim(scene.publish(name)) for name in ("holder", "first", "last"))
    take_place(scene, holder)
    take_place(scene, first, stands=True)
    take_place(scene, last, stands=True)
    scene.ledger.settle(holder)
    # It is not its turn.
    take_place(scene, scene.claim(scene.publish("later")), stands=True)


def what_was_taken_has_been_stopped(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.take(claim)
    scene.workers.acknowledge(claim)


def two_workers_die_as_they_open_a_message(scene: Scene) -> None:
    message = scene.publish()
    for worker in ("me", "other"):
        scene.workers.open(worker, "tag", "task", message.epoch, max_losses=0, patience_seconds=1)
        scene.kill_worker(worker)
        scene.ledger.blame(scene.lease(worker), "opening", max_losses=0, due_in_ms=LOOK_MS)


def moments_are_given_one_after_another(scene: Scene) -> None:
    for name in ("first", "second"):
        message = scene.publish(name)
        rate = Rate("app.work", 10_000_000)
        scene.ledger.paces.reserve(name, "app.work", rate, epoch=message.epoch)


def a_worker_dies_that_ran_one_task(scene: Scene) -> None:
    scene.claim(scene.publish())
    scene.workers.deregister("me", in_unacked=0)
    scene.kill_worker("me")
