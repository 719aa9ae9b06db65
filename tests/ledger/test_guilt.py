"""A worker's death is charged to one of what it ran, or to nobody; all of it is suspected."""

from __future__ import annotations

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.answers import Alone, Answer, Claimed
from celery_reliable.model import Cause, Claim
from tests.ledger.scene import LOOK_MS, Published, Scene


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


def lose(scene: Scene, lease: WorkerLease, claim: Claim) -> Answer:
    return scene.lose(claim, Cause.WORKER_LOST, is_taken=True, verdict=lease.verdict)


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


def test_what_ran_alone_in_a_worker_that_died_is_charged(scene: Scene) -> None:
    scene.claim(scene.publish("alone"), "me")

    lease = die(scene)

    assert (lease.verdict.word, lease.verdict.charged) == ("only", "alone")
    assert losses(scene, "alone") == [1]


def test_of_several_nobody_is_charged_until_a_suspect_dies_again(scene: Scene) -> None:
    """The first death may be the machine's; the next one of a suspect counts for both."""
    run_together(scene, "guilty", "beside")
    assert losses(scene, "guilty", "beside") == [0, 0]
    scene.claim(message_of(scene, "guilty"), "me")
    scene.claim(scene.publish("fresh"), "me")

    lease = die(scene)

    assert (lease.verdict.word, lease.verdict.charged) == ("suspect", "guilty")
    assert losses(scene, "guilty", "beside", "fresh") == [2, 0, 0]


def test_a_worker_runs_one_suspect_at_a_time(scene: Scene) -> None:
    run_together(scene, "a", "b")
    first = scene.claim(message_of(scene, "a"), "me")
    scene.client.hset(scene.ledger.keys.record("b"), mapping={"resends": 3, "since_ms": 1})

    assert isinstance(scene.ask(message_of(scene, "b"), "me"), Alone)
    record = scene.record_of("b")
    assert (record.waiting_for, scene.resends("b")) == ("alone", 0)
    assert record.since_ms > 1
    # What is none is not kept waiting, and neither is a suspect in another worker.
    scene.claim(scene.publish("c"), "me")
    scene.ledger.resend(scene.seen_due("b"), due_in_ms=LOOK_MS)
    assert isinstance(scene.ask(message_of(scene, "b"), "other"), Claimed)

    scene.ledger.settle(first)
    run_together(scene, "d", "e")
    scene.claim(message_of(scene, "d"), "me")
