"""A worker's death is charged to one of what it ran, or to nobody; all of it is suspected."""

from __future__ import annotations

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.tasks import Alone, Claimed
from celery_reliable.model import Cause, Claim
from tests.ledger.scene import MAX_LOSSES, Published, Scene


def die(scene: Scene, worker: str = "me") -> WorkerLease:
    """Have a worker die; lose what it ran, as recovery does, and forget it; return its lease."""
    claims = scene.workers.claims(worker)
    scene.kill_worker(worker)
    lease = scene.lease(worker)
    for claim, _ in claims.values():
        answer = lose(scene, lease, claim)
        assert lose(scene, lease, claim) == answer
    assert scene.workers.deregister(worker, in_unacked=0)
    return lease


def lose(scene: Scene, lease: WorkerLease, claim: Claim, max_losses: int = MAX_LOSSES) -> Answer:
    return scene.lose(
        claim, Cause.WORKER_LOST, max_losses=max_losses, is_taken=True, verdict=lease.verdict
    )


def losses(scene: Scene, *task_ids: str) -> list[int]:
    return [scene.record_of(task_id).losses for task_id in task_ids]


def run_together(scene: Scene, *task_ids: str, deaths: int = 2) -> None:
    """Publish tasks, and have workers die, one after the other, that ran all of them."""
    for task_id in task_ids:
        scene.publish(task_id)
    for _ in range(deaths):
        scene.start_worker("victim")
        for task_id in task_ids:
            scene.claim(message_of(scene, task_id), "victim")
        die(scene, "victim")


def message_of(scene: Scene, task_id: str) -> Published:
    """The task's message of now, delivered once more."""
    epoch = scene.record_of(task_id).epoch
    return Published(scene.foreign(task_id).task, epoch, scene.ledger.generation)


def test_a_worker_runs_one_suspect_at_a_time(scene: Scene) -> None:
    run_together(scene, "a", "b")
    first = scene.claim(message_of(scene, "a"), "me")

    assert isinstance(scene.ask(message_of(scene, "b"), "me"), Alone)
    # What is none is not kept waiting, and neither is a suspect in another worker.
    scene.claim(scene.publish("c"), "me")
    assert isinstance(scene.ask(message_of(scene, "b"), "other"), Claimed)

    scene.ledger.settle(first)
    run_together(scene, "d", "e")
    scene.claim(message_of(scene, "d"), "me")


def test_of_what_was_in_a_death_and_has_ended_its_worker_keeps_nothing(scene: Scene) -> None:
    run_together(scene, "a", "b", deaths=1)
    first = scene.claim(message_of(scene, "a"), "me")
    key = scene.ledger.keys.worker("me")
    assert b"a" in scene.client.hget(key, "spared_claims")
    second = scene.claim(message_of(scene, "b"), "me")
    scene.ledger.settle(first)
    scene.claim(scene.publish("fresh"), "me")
    assert b'"a"' not in scene.client.hget(key, "spared_claims")
    scene.ledger.settle(second)
    scene.claim(scene.publish("fresher"), "me")
    assert not scene.client.hexists(key, "spared_claims")
