"""A missing record proves that its task ended, as long as the server lost none."""

from __future__ import annotations

from celery_reliable.ledger.answers.tasks import (
    OtherGeneration,
    Replayed,
    Unrecorded,
)
from celery_reliable.ledger.publications import sender_of
from tests.ledger.scene import Published, RestartableScene, Scene
from tests.support.redis_server import RedisServer


def lose_from(scene: Scene, *messages: Published) -> None:
    """What a server does that comes back without its last writes: these publications, the latest of
    their sender, and whatever came after.
    """
    for message in messages:
        scene.client.delete(scene.ledger.keys.record(message.task.id))
        scene.client.zrem(scene.ledger.keys.due, message.task.id)
        sender, number = sender_of(message.epoch)
        key, before = scene.ledger.keys.sent(sender), int(number) - 1
        had = (scene.client.get(key) or b"-0").rpartition(b"-")[2]
        if int(had) > before:
            scene.client.delete(key)
            if before:
                scene.client.set(key, f"0-00000000-{sender}-{before}")


def restart(server: RedisServer) -> None:
    server.stop()
    server.start()


def generation(scene: Scene) -> int:
    return int(scene.ledger.passes.meta()["generation"])


def test_a_record_that_a_restart_lost_is_made_again(restartable: RestartableScene) -> None:
    scene = restartable
    kept, lost, other = (scene.publish(name) for name in ("kept", "lost", "other"))
    restart(restartable.server)
    lose_from(scene, lost, other)

    # Whoever comes first counts up, without having the message at hand; nobody counts twice.
    assert isinstance(scene.ask(lost), Unrecorded)
    counted = generation(scene)
    assert counted > int(kept.generation)
    assert scene.claim(lost).attempt == 1
    assert scene.claim(other).attempt == 1
    assert scene.claim(kept).attempt == 1
    assert generation(scene) == counted


def test_a_replay_where_no_generation_is_known_begins_one_as_a_record_does(scene: Scene) -> None:
    """Not at 1, where every ledger of old began."""
    scene.bury(scene.claim(scene.publish()))
    before = generation(scene)
    scene.client.delete(scene.ledger.keys.meta)
    scene.ledger.generation = "1"

    answer = scene.ledger.replay("task", epoch="1-replay", message="", due_in_ms=0)

    assert isinstance(answer, OtherGeneration)
    assert int(answer.current) == generation(scene) >= before
    assert scene.state() == "dead"
    scene.ledger.generation = answer.current
    again = scene.ledger.replay("task", epoch="1-replay", message="", due_in_ms=0)
    assert isinstance(again, Replayed)
