"""Short stories for faults of scripts that no scene of the ledger's tests shows by itself."""

from __future__ import annotations

from tests.ledger.scene import LOOK_MS, Scene


def test_who_is_declared_dead_asks_for_a_claim(scene: Scene) -> None:
    message = scene.publish()
    scene.kill_worker("me")
    scene.ask(message, "me", content="as delivered")


def test_a_message_comes_when_its_task_has_ended(scene: Scene) -> None:
    message = scene.publish()
    scene.ledger.settle(scene.claim(message))
    scene.ask(message, content="as delivered")


def test_a_claim_comes_late(scene: Scene) -> None:
    message = scene.publish()
    for token in ("first", "second"):
        scene.ledger.release(scene.claim(message, token=token), due_in_ms=LOOK_MS)
        scene.ask(message, token="first")


def test_a_replay_is_repeated(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    for _ in range(2):
        scene.ledger.replay("task", epoch="1-replay", message="again", due_in_ms=LOOK_MS)


def test_an_object_is_free_when_its_task_has_ended(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.locks.take("object", claim)
    scene.ledger.settle(claim)
