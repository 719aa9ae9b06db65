"""A worker's death is charged to one of what it ran or to the message that it opened, or to nobody;
all of it is suspected.
"""

from __future__ import annotations

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import answers
from celery_reliable.ledger.answers import Alone, Answer, Claimed
from celery_reliable.model import Cause, Claim
from tests.ledger.scene import LOOK_MS, MAX_LOSSES, Published, Scene


def opens(
    scene: Scene,
    message: Published,
    worker: str = "me",
    delivery: str = "tag",
    *,
    is_over: bool = False,
) -> type[Answer]:
    about = (worker, delivery, message.task.id, message.epoch)
    return type(
        scene.workers.open(*about, max_losses=MAX_LOSSES, is_over=is_over, patience_seconds=1)
    )


def blame(scene: Scene, lease: WorkerLease) -> Answer:
    return scene.ledger.blame(lease, "opening", max_losses=MAX_LOSSES, due_in_ms=LOOK_MS)


def die_opening(scene: Scene, message: Published, worker: str = "me") -> WorkerLease:
    assert opens(scene, message, worker) is answers.Opening
    scene.kill_worker(worker)
    return scene.lease(worker)


def recover(scene: Scene, lease: WorkerLease) -> None:
    """Lose what a dead worker ran and opened, as recovery does, and forget it."""
    for claim, _ in scene.workers.claims(lease.worker).values():
        lose(scene, lease, claim)
    blame(scene, lease)
    assert scene.workers.deregister(lease.worker, in_unacked=0)


def test_who_dies_while_it_opens_one_charges_that_one_alone(scene: Scene) -> None:
    suspicious = scene.publish("suspicious")
    scene.client.hset(scene.ledger.keys.record("suspicious"), "since_ms", 1)

    lease = die_opening(scene, suspicious)

    assert lease.verdict.is_opening
    assert (lease.opening, lease.opening_id) == ("tag", "suspicious")
    first = blame(scene, lease)
    assert first == answers.Queued(1)
    assert blame(scene, lease) == first
    assert losses(scene, "suspicious") == [1]
    # It goes back to its queue, where it has waited since now.
    assert scene.record_of("suspicious").since_ms > 1
    assert scene.lease("me").opening == ""


def test_what_was_in_a_death_and_begins_meanwhile_makes_it_unclear(scene: Scene) -> None:
    scene.claim(scene.publish("running"), "me")
    recover(scene, die_opening(scene, scene.publish("fetched")))
    scene.start_worker("it")
    assert opens(scene, message_of(scene, "fetched"), "it") is answers.Opening
    scene.claim(message_of(scene, "running"), "it")
    scene.kill_worker("it")

    recover(scene, scene.lease("it"))

    assert losses(scene, "running", "fetched") == [0, 0]


def test_a_claim_takes_the_notes_place(scene: Scene) -> None:
    message = scene.publish("a")
    assert opens(scene, message) is answers.Opening
    scene.claim(message)
    scene.kill_worker("me")

    lease = scene.lease("me")
    assert (lease.verdict.is_opening, lease.verdict.charges("a")) == (False, True)


def test_a_late_blame_of_one_death_counts_once(scene: Scene) -> None:
    message = scene.publish("a")
    lease = die_opening(scene, message)
    blame(scene, lease)
    scene.lose(scene.claim(message, "other"))

    blame(scene, lease)

    assert losses(scene, "a") == [2]


def test_no_death_can_be_that_of_a_message_and_of_a_suspect_that_just_began(scene: Scene) -> None:
    run_together(scene, "a", "b")
    fetched = scene.publish("fetched")
    scene.ledger.resend(scene.seen_due("fetched"), due_in_ms=LOOK_MS)
    scene.claim(message_of(scene, "a"), "me")
    scene.client.hset(scene.ledger.keys.record("fetched"), "since_ms", 1)

    assert opens(scene, fetched) is answers.Alone
    record = scene.record_of("fetched")
    assert (record.waiting_for, record.resends) == ("alone", 0)
    assert record.since_ms > 1
    assert opens(scene, message_of(scene, "b"), delivery="other") is answers.Alone
    for task_id in ("fetched", "b"):
        answer = scene.ledger.resend(scene.seen_due(task_id), due_in_ms=LOOK_MS)
        # Its message says that it came back.
        assert isinstance(answer, answers.Send)
        assert answer.is_suspect
    die(scene)
    assert losses(scene, "a", "b", "fetched") == [2, 0, 0]


def test_what_came_back_does_not_wait_for_a_suspect_that_runs_for_long(scene: Scene) -> None:
    run_together(scene, "a", "b")
    fetched = scene.publish("fetched")
    scene.claim(message_of(scene, "a"), "me")
    scene.client.hincrby(scene.ledger.keys.worker("me"), "suspect_ms", -10_000)

    assert opens(scene, fetched) is answers.Opening
    scene.claim(fetched, "me")
    # A clock that has stepped back holds up nobody either.
    scene.client.hincrby(scene.ledger.keys.worker("me"), "suspect_ms", 3600_000)
    assert opens(scene, scene.publish("later")) is answers.Opening


def test_a_suspect_does_not_begin_while_another_message_is_opened(scene: Scene) -> None:
    run_together(scene, "a", "b")
    fetched = scene.publish("fetched")
    assert opens(scene, fetched) is answers.Opening

    scene.client.hset(scene.ledger.keys.record("a"), "resends", 3)
    assert isinstance(scene.ask(message_of(scene, "a"), "me"), answers.Alone)
    assert scene.record_of("a").resends == 0
    assert opens(scene, fetched, is_over=True) is answers.Opened
    scene.ledger.resend(scene.seen_due("a"), due_in_ms=LOOK_MS)
    assert isinstance(scene.ask(message_of(scene, "a"), "me"), answers.Claimed)


def test_a_worker_without_a_lease_notes_nothing(scene: Scene) -> None:
    scene.kill_worker("me")
    before = scene.snapshot()

    assert opens(scene, scene.foreign()) is answers.NoLease
    assert opens(scene, scene.foreign(), "stranger") is answers.NoLease
    assert scene.snapshot() == before


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


def test_a_worker_runs_one_suspect_at_a_time(scene: Scene) -> None:
    run_together(scene, "a", "b")
    first = scene.claim(message_of(scene, "a"), "me")

    assert isinstance(scene.ask(message_of(scene, "b"), "me"), Alone)
    # What is none is not kept waiting, and neither is a suspect in another worker.
    scene.claim(scene.publish("c"), "me")
    scene.ledger.resend(scene.seen_due("b"), due_in_ms=LOOK_MS)
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
