"""What happened to a task is kept when it ends, if anything happened to it."""

from __future__ import annotations

from celery_reliable.ledger.answers.tasks import Cancelled, Discarded
from celery_reliable.model import Claim, EndedTask
from tests.ledger.scene import Scene


def ended(scene: Scene, task_id: str = "task") -> EndedTask:
    found = scene.ledger.ended_task(task_id)
    assert found is not None
    return found


def whats(found: EndedTask) -> list[str]:
    return [entry.what for entry in found.history]


def lost_once(scene: Scene, task_id: str = "task") -> Claim:
    """Return the second attempt of a task whose first one was lost."""
    scene.start_worker("me")
    message = scene.publish(task_id)
    scene.lose(scene.claim(message))
    return scene.claim(message)


def test_one_in_so_many_of_these_is_kept_if_asked_for(scene: Scene) -> None:
    scene.start_worker("me")
    scene.ledger.sample_one_in = 3
    ids = [f"task {n}" for n in range(90)]
    for task_id in ids:
        scene.ledger.settle(scene.claim(scene.publish(task_id)), outcome="SUCCESS")

    kept = [one for one in map(scene.ledger.ended_task, ids) if one is not None]
    assert 15 <= len(kept) <= 45
    assert all(one.outcome == "SUCCESS" and one.history == () for one in kept)


def test_a_task_that_is_called_off_says_by_whom(scene: Scene) -> None:
    scene.start_worker("me")
    scene.lose(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.revoke("task", by="revoked"), Cancelled)

    found = ended(scene)
    assert (found.outcome, found.by, whats(found)) == ("REVOKED", "revoked", ["lost"])


def test_a_dead_letter_that_is_discarded_says_by_whom(scene: Scene) -> None:
    scene.start_worker("me")
    scene.bury(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.discard("task", by="ada"), Discarded)

    found = ended(scene)
    assert (found.outcome, found.by, whats(found)) == ("DISCARDED", "ada", ["failed"])
    (entry,) = found.history
    assert (entry.cause, entry.owner, entry.pid) == ("ValueError: no", "me", 1000)


def test_whoever_ends_tasks_keeps_only_the_newest(scene: Scene) -> None:
    scene.ledger.keep_ended = 2

    def settle(task_id: str) -> None:
        scene.ledger.settle(lost_once(scene, task_id))

    def revoke(task_id: str) -> None:
        scene.lose(lost_once(scene, task_id))
        scene.ledger.revoke(task_id)

    def discard(task_id: str) -> None:
        scene.bury(lost_once(scene, task_id))
        scene.ledger.discard(task_id)

    for end in (settle, revoke, discard):
        what = end.__name__
        for n in range(4):
            end(f"{what} {n}")
        kept = [one.task_id for one in scene.ledger.ended_tasks()]
        assert kept == [f"{what} 3", f"{what} 2"]
        assert scene.client.hlen(scene.ledger.keys.ended) == 2
        assert scene.client.zcard(scene.ledger.keys.ended_at) == 2
