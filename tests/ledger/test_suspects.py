"""A worker's death is charged to one of what it ran, or to nobody; all of it is suspected."""

from __future__ import annotations

import pytest

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.tasks import Alone, Claimed, Send, Spent
from celery_reliable.model import Cause, Claim, State, TaskRef
from tests.ledger.scene import LOOK_MS, MAX_LOSSES, Published, Scene


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
    return scene.ledger.lose(
        claim,
        Cause.WORKER_LOST,
        max_losses=max_losses,
        due_in_ms=LOOK_MS,
        is_taken=True,
        verdict=lease.verdict,
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


def test_a_suspect_that_is_the_only_one_is_charged_as_a_suspect(scene: Scene) -> None:
    # What else its worker held, and nobody had opened, speaks for an only one, and not for it.
    run_together(scene, "a", "b")
    scene.start_worker("victim")
    scene.claim(message_of(scene, "a"), "victim")

    assert die(scene, "victim").verdict.word == "suspect"
    assert losses(scene, "a", "b") == [2, 0]


def test_the_only_one_is_charged(scene: Scene) -> None:
    run_together(scene, "a", deaths=1)

    assert losses(scene, "a") == [1]


def test_after_one_death_that_is_charged_to_nobody_all_run_together_as_before(scene: Scene) -> None:
    # It may well have been the machine's; and what runs for long would wait for long.
    run_together(scene, "a", "b", "c", deaths=1)

    for task_id in "abc":
        assert isinstance(scene.ask(message_of(scene, task_id), "me"), Claimed)


def test_where_no_loss_is_allowed_a_task_is_suspected_at_once(scene: Scene) -> None:
    scene.start_worker("victim")
    claims = [scene.claim(scene.publish(task_id), "victim") for task_id in "ab"]
    scene.kill_worker("victim")
    lease = scene.lease("victim")
    for claim in claims:
        lose(scene, lease, claim, max_losses=0)
    poison = scene.claim(message_of(scene, "a"), "me")

    assert isinstance(scene.ask(message_of(scene, "b"), "me"), Alone)
    scene.kill_worker("me")
    assert isinstance(lose(scene, scene.lease("me"), poison, max_losses=0), Spent)


def test_who_is_found_out_is_charged_with_all_deaths_but_the_first(scene: Scene) -> None:
    run_together(scene, "a", "b")
    assert losses(scene, "a", "b") == [0, 0]
    for expected in (2, 3):
        scene.start_worker("it")
        scene.claim(message_of(scene, "a"), "it")
        scene.claim(scene.publish(f"beside {expected}"), "it")
        die(scene, "it")
        assert losses(scene, "a", "b", f"beside {expected}") == [expected, 0, 0]


def test_of_several_of_which_nobody_is_a_suspect_nobody_is_charged(scene: Scene) -> None:
    run_together(scene, "a", "b", "c")

    assert losses(scene, "a", "b", "c") == [0, 0, 0]
    assert {scene.state(one) for one in "abc"} == {State.QUEUED.value}


def test_of_several_the_suspect_is_charged(scene: Scene) -> None:
    run_together(scene, "a", "b")
    scene.claim(message_of(scene, "b"), "me")
    scene.claim(scene.publish("c"), "me")

    die(scene)

    assert losses(scene, "a", "b", "c") == [0, 2, 0]


def test_a_suspect_that_has_ended_is_not_charged_with_what_comes_later(scene: Scene) -> None:
    run_together(scene, "a", "b")
    suspect = scene.claim(message_of(scene, "a"), "me")
    scene.claim(scene.publish("c"), "me")
    scene.claim(scene.publish("d"), "me")
    scene.ledger.settle(suspect)
    # Its id is in the worker again, as a task that is no suspect.
    scene.claim(scene.publish("a"), "me")

    die(scene)

    assert losses(scene, "a", "c", "d") == [0, 0, 0]


def test_whoever_runs_beside_a_suspect_is_one_the_next_time(scene: Scene) -> None:
    # Else one that kills its workers is never found as long as a suspect is beside it.
    run_together(scene, "innocent", "another")
    scene.start_worker("it")
    scene.claim(message_of(scene, "innocent"), "it")
    scene.claim(scene.publish("poison"), "it")
    die(scene, "it")
    scene.start_worker("it")
    scene.claim(message_of(scene, "innocent"), "it")
    # So it does not come to a second time.
    assert isinstance(scene.ask(message_of(scene, "poison"), "it"), Alone)
    scene.claim(message_of(scene, "poison"), "other")
    scene.claim(scene.publish("fresh"), "other")
    die(scene, "other")

    assert losses(scene, "poison", "fresh") == [1, 0]


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


@pytest.mark.parametrize("how", ["settle", "bury", "release", "lose", "retry", "replace"])
def test_the_next_suspect_may_run_when_the_first_has_ended(scene: Scene, how: str) -> None:
    run_together(scene, "a", "b")
    first = scene.claim(message_of(scene, "a"), "me")
    {
        "settle": lambda: scene.ledger.settle(first),
        "bury": lambda: scene.bury(first),
        "release": lambda: scene.ledger.release(first, due_in_ms=LOOK_MS),
        "lose": lambda: scene.lose(first),
        "retry": lambda: scene.publish("a", claim=first),
        "replace": lambda: scene.ledger.replace(first, due_in_ms=LOOK_MS),
    }[how]()

    assert isinstance(scene.ask(message_of(scene, "b"), "me"), Claimed)


def test_who_may_not_run_now_is_sent_again_soon_and_no_loss_is_counted(scene: Scene) -> None:
    run_together(scene, "a", "b")
    scene.claim(message_of(scene, "a"), "me")
    waits = []
    for _ in range(8):
        assert isinstance(scene.ask(message_of(scene, "b"), "me"), Alone)
        record, due = scene.record_of("b"), scene.seen_due("b")
        assert (record.state, record.losses, record.is_unsent) == (State.QUEUED, 0, True)
        waits.append(float(due.due_ms) - scene.workers.time_ms())

    assert 300 <= waits[0] <= 1000
    # The longer it has waited the rarer it asks, and never so rarely that it is forgotten.
    assert max(waits) <= 16_000
    assert min(waits[5:]) >= 7_000
    answer = scene.ledger.resend(scene.seen_due("b"), due_in_ms=LOOK_MS)
    assert isinstance(answer, Send)


def test_the_same_delivery_that_asks_again_may_run_meanwhile(scene: Scene) -> None:
    run_together(scene, "a", "b")
    first = scene.claim(message_of(scene, "a"), "me")
    assert isinstance(scene.ask(message_of(scene, "b"), "me", token="one"), Alone)
    scene.ledger.settle(first)

    assert isinstance(scene.ask(message_of(scene, "b"), "me", token="one"), Claimed)
    assert isinstance(scene.ask(message_of(scene, "b"), "me", token="one"), Claimed)
    assert not scene.record_of("b").is_unsent
    assert scene.seen_due("b").due_ms == "0"


@pytest.mark.parametrize("how", ["retry", "replay", "publish", "replace"])
def test_who_lives_on_as_another_publication_is_no_suspect(scene: Scene, how: str) -> None:
    run_together(scene, "a", "b")
    mine = scene.claim(message_of(scene, "b"), "other")
    if how == "retry":
        scene.publish("b", claim=mine)
    elif how == "replace":
        scene.ledger.bequeath(mine, heir="canvas")
        scene.ledger.replace(mine, due_in_ms=LOOK_MS)
        scene.record(TaskRef("b", "app.work"), "0-canvas", heir="canvas")
    else:
        scene.bury(mine)
        if how == "publish":
            scene.publish("b")
        else:
            scene.ledger.replay("b", epoch="1-replay", message="m", due_in_ms=0)
    scene.claim(message_of(scene, "a"), "me")

    assert isinstance(scene.ask(message_of(scene, "b"), "me"), Claimed)


@pytest.mark.parametrize("innocents", [1, 7])
def test_one_that_kills_its_workers_is_found_in_time_and_alone(
    scene: Scene, innocents: int
) -> None:
    names = [f"innocent {n}" for n in range(innocents)]
    run_together(scene, "poison", *names)
    deaths = 1
    while scene.state("poison") != State.DEAD.value:
        scene.start_worker("it")
        # The others were there before it, so that it is kept waiting first.
        for name in [*names, "poison", "poison"]:
            if scene.ledger.find(name) is None:
                continue
            answer = scene.ask(message_of(scene, name), "it")
            if isinstance(answer, Claimed) and name != "poison":
                attempt = Claim(name, answer.attempt, "it", scene.record_of(name).token)
                scene.ledger.settle(attempt)
        die(scene, "it")
        deaths += 1

    assert deaths <= MAX_LOSSES + 2
    assert {scene.state(name) for name in names} == {"absent"}


def test_the_history_says_who_was_not_charged_and_why(scene: Scene) -> None:
    scene.start_worker("victim")
    for task_id in ("a", "b"):
        scene.claim(scene.publish(task_id), "victim")
    scene.kill_worker("victim")
    lease = scene.lease("victim")
    claim, _ = scene.workers.claims("victim")["a"]
    scene.ledger.lose(
        claim,
        Cause.WORKER_LOST,
        max_losses=0,
        due_in_ms=LOOK_MS,
        verdict=lease.verdict,
        detail="lapsed, pid 7",
    )
    scene.bury(scene.claim(message_of(scene, "a"), "me"))

    letter = scene.ledger.dead_letter("a")
    assert letter is not None
    first = letter.history[0]
    assert (first.what, first.cause) == ("spared", "worker_lost: lapsed, pid 7")
    assert letter.losses == 0


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
