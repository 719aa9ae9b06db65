"""What an attempt's number and its claim's token are for."""

from __future__ import annotations

from celery_reliable.model import Reply
from tests.ledger.scene import Scene


def test_attempts_are_numbered_through_losses_retries_and_replays(scene: Scene) -> None:
    message = scene.publish()
    first = scene.claim(message)
    scene.lose(first)
    second = scene.claim(message)
    retry = scene.publish(claim=second)
    third = scene.claim(retry)
    scene.bury(third)
    scene.ledger.replay("task", epoch="3-replay", message="m", due_in_ms=0)
    fourth = scene.ask(type(message)(message.task, "3-replay", message.generation))

    assert [first.attempt, second.attempt, third.attempt, fourth.values[0]] == [1, 2, 3, 4]


def test_a_zombie_of_an_ids_former_life_ends_nothing_of_the_latter(scene: Scene) -> None:
    zombie = scene.claim(scene.publish())
    scene.lose(zombie, is_taken=True)
    scene.ledger.cancel("task")
    current = scene.claim(scene.publish(), "other")
    assert current.attempt == zombie.attempt
    before = scene.snapshot()

    replies = {
        scene.ledger.touch(zombie, time_to_run_ms=0).reply,
        scene.ledger.settle(zombie).reply,
        scene.ledger.replace(zombie, due_in_ms=0).reply,
        scene.ledger.release(zombie, due_in_ms=0).reply,
        scene.lose(zombie).reply,
        scene.bury(zombie).reply,
        scene.record(scene.foreign().task, "1-late", claim=zombie).reply,
    }

    assert replies == {Reply.FENCED}
    assert scene.snapshot() == before
    assert scene.ledger.settle(current).reply is Reply.SETTLED
