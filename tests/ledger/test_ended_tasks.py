"""What happened to a task is kept when it ends, if anything happened to it."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.answers.tasks import Cancelled, Discarded, Recorded, Settled, Troubled
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


def test_a_task_that_nothing_happened_to_leaves_nothing(scene: Scene) -> None:
    scene.start_worker("me")
    claim = scene.claim(scene.publish())

    assert isinstance(scene.ledger.settle(claim, outcome="SUCCESS"), Settled)

    assert scene.ledger.ended_task("task") is None
    assert not scene.client.exists(scene.ledger.keys.ended, scene.ledger.keys.ended_at)


def test_one_in_so_many_of_these_is_kept_if_asked_for(scene: Scene) -> None:
    scene.start_worker("me")
    scene.ledger.sample_one_in = 3
    ids = [f"task {n}" for n in range(90)]
    for task_id in ids:
        scene.ledger.settle(scene.claim(scene.publish(task_id)), outcome="SUCCESS")

    kept = [one for one in map(scene.ledger.ended_task, ids) if one is not None]
    assert 15 <= len(kept) <= 45
    assert all(one.outcome == "SUCCESS" and one.history == () for one in kept)


def test_a_lost_attempt_is_told_with_its_worker_and_process(scene: Scene) -> None:
    claim = lost_once(scene)
    before = scene.workers.time_ms()

    assert isinstance(scene.ledger.settle(claim, outcome="SUCCESS"), Settled)

    found = ended(scene)
    assert (found.name, found.outcome, found.attempts, found.losses) == (
        "app.work",
        "SUCCESS",
        2,
        1,
    )
    assert (found.owner, found.pid) == ("me", 1000)
    assert found.published_ms <= found.claimed_ms <= before <= found.ended_ms
    (entry,) = found.history
    assert (entry.what, entry.attempt, entry.owner, entry.pid) == ("lost", 1, "me", 1000)
    assert "child_lost" in entry.cause
    assert found.published_ms <= entry.claimed_ms <= entry.at_ms


def test_who_knows_of_its_history_ends_it_in_one_step(scene: Scene) -> None:
    claim = lost_once(scene)
    n_calls, call = 0, scene.ledger._caller.run

    def counted(*args: object, **options: object) -> object:
        nonlocal n_calls
        n_calls += 1
        return call(*args, **options)  # type: ignore[arg-type]

    scene.ledger._caller.run = counted  # type: ignore[assignment]

    assert isinstance(scene.ledger.settle(claim, outcome="SUCCESS"), Settled)

    assert n_calls == 1


def test_who_does_not_know_of_its_history_is_asked_for_a_place_and_changes_nothing(
    scene: Scene,
) -> None:
    """Its first death was charged to nobody, so that neither losses nor number need tell of it."""
    claim = lost_once(scene)
    replies = []
    call = scene.ledger._caller.run

    def watched(*args: object, **options: object) -> object:
        before = scene.snapshot()
        answer = call(*args, **options)  # type: ignore[arg-type]
        replies.append((type(answer), scene.snapshot() == before))
        return answer

    scene.ledger._caller.run = watched  # type: ignore[assignment]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claim, "is_troubled", property(lambda _: False))
        assert isinstance(scene.ledger.settle(claim, outcome="SUCCESS"), Settled)

    assert replies == [(Troubled, True), (Settled, False)]
    assert whats(ended(scene)) == ["lost"]


def test_a_task_that_is_called_off_says_by_whom(scene: Scene) -> None:
    scene.start_worker("me")
    scene.lose(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.revoke("task", by="revoked"), Cancelled)

    found = ended(scene)
    assert (found.outcome, found.by, whats(found)) == ("REVOKED", "revoked", ["lost"])


def test_what_is_called_off_while_an_attempt_is_still_to_be_stopped_is_kept_too(
    scene: Scene,
) -> None:
    scene.start_worker("me")
    scene.take(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.revoke("task", by="revoked"), Cancelled)

    assert scene.state() == "waiting"
    assert whats(ended(scene)) == ["lost"]


def test_a_dead_letter_that_is_discarded_says_by_whom(scene: Scene) -> None:
    scene.start_worker("me")
    scene.bury(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.discard("task", by="ada"), Discarded)

    found = ended(scene)
    assert (found.outcome, found.by, whats(found)) == ("DISCARDED", "ada", ["failed"])
    (entry,) = found.history
    assert (entry.cause, entry.owner, entry.pid) == ("ValueError: no", "me", 1000)


def test_a_replay_is_part_of_it_with_its_operator(scene: Scene) -> None:
    scene.start_worker("me")
    scene.bury(scene.claim(scene.publish()))
    scene.ledger.replay("task", epoch="1-again", message="again", due_in_ms=1000, by="ada")
    message = scene.publish("other")
    again = type(message)(
        type(message.task)("task", "app.work"), epoch="1-again", generation=scene.ledger.generation
    )

    scene.ledger.settle(scene.claim(again), outcome="SUCCESS")

    found = ended(scene)
    assert [(one.what, one.owner) for one in found.history] == [
        ("failed", "me"),
        ("replayed", "ada"),
    ]


def test_a_zombie_of_a_task_that_has_ended_leaves_nothing(scene: Scene) -> None:
    scene.start_worker("me")
    claim = scene.claim(scene.publish())
    scene.ledger.settle(claim)
    before = scene.snapshot()

    scene.ledger.settle(claim)

    assert scene.snapshot() == before


def test_only_the_newest_are_kept(scene: Scene) -> None:
    scene.ledger.keep_ended = 3
    for n in range(5):
        scene.ledger.settle(lost_once(scene, f"task {n}"), outcome="SUCCESS")

    assert [one.task_id for one in scene.ledger.ended_tasks()] == ["task 4", "task 3", "task 2"]
    assert scene.client.hlen(scene.ledger.keys.ended) == 3
    assert scene.client.zcard(scene.ledger.keys.ended_at) == 3


def test_whoever_ends_tasks_keeps_only_the_newest(scene: Scene) -> None:
    scene.ledger.keep_ended = 2
    scene.start_worker("me")
    for n in range(4):
        claim = scene.claim(scene.publish(f"lost {n}"))
        scene.lose(claim)
        scene.ledger.revoke(f"lost {n}")
        assert scene.client.hlen(scene.ledger.keys.ended) == min(n + 1, 2)
    assert [one.task_id for one in scene.ledger.ended_tasks()] == ["lost 3", "lost 2"]
    for n in range(4):
        scene.bury(scene.claim(scene.publish(f"dead {n}")))
        scene.ledger.discard(f"dead {n}")
        assert scene.client.hlen(scene.ledger.keys.ended) == 2
    assert [one.task_id for one in scene.ledger.ended_tasks()] == ["dead 3", "dead 2"]
    assert scene.client.zcard(scene.ledger.keys.ended_at) == 2


def test_where_none_are_kept_none_is(scene: Scene) -> None:
    scene.ledger.settle(lost_once(scene), outcome="SUCCESS")
    scene.ledger.keep_ended = 0

    scene.ledger.settle(lost_once(scene, "other"), outcome="SUCCESS")

    assert scene.ledger.ended_tasks() == []


def test_an_id_that_ends_again_is_told_of_by_its_last_life(scene: Scene) -> None:
    scene.ledger.settle(lost_once(scene), outcome="SUCCESS")
    scene.ledger.settle(lost_once(scene), outcome="FAILURE")

    assert [one.outcome for one in scene.ledger.ended_tasks()] == ["FAILURE"]


def test_its_pages_go_on_where_the_last_one_ended(scene: Scene) -> None:
    for n in range(5):
        scene.ledger.settle(lost_once(scene, f"task {n}"))

    pages = [scene.ledger.ended_tasks(start=start, limit=2) for start in (0, 2, 4)]

    assert [[one.task_id[-1] for one in page] for page in pages] == [["4", "3"], ["2", "1"], ["0"]]


def test_a_retry_keeps_what_happened_before(scene: Scene) -> None:
    claim = lost_once(scene)
    again = scene.publish(claim=claim)
    assert isinstance(scene.record(again.task, again.epoch), Recorded)

    scene.ledger.settle(scene.claim(again), outcome="SUCCESS")

    assert whats(ended(scene)) == ["lost", "retried"]
