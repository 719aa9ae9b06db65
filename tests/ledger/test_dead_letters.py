"""Dead letters, and what is kept of tasks that have ended."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import answers
from celery_reliable.ledger.answers import Cancelled
from celery_reliable.model import Claim, EndedTask, Reason, State
from tests.ledger.scene import MAX_LOSSES, Published, Scene
from tests.support.promises import promise


def spend(scene: Scene, message: Published) -> int:
    """Lose attempts until the task is buried; return how many ran."""
    for runs in range(1, 100):
        if isinstance(scene.lose(scene.claim(message)), answers.Spent):
            return runs
    raise AssertionError("never buried")


def replay(scene: Scene, task_id: str = "task", epoch: str = "0-replay") -> Published:
    answer = scene.replay(task_id, epoch)
    if isinstance(answer, answers.OtherGeneration):
        scene.ledger.generation = answer.current
        return replay(scene, task_id, epoch)
    assert isinstance(answer, answers.Recorded)
    return Published(scene.foreign(task_id).task, epoch, scene.ledger.generation)


@promise("poison-stops")
@pytest.mark.parametrize("max_losses", [None, 0, 5])
def test_a_poison_pill_is_buried_after_its_losses_and_one(
    scene: Scene, max_losses: int | None
) -> None:
    runs = spend(scene, scene.publish(max_losses=max_losses))

    assert runs == (MAX_LOSSES if max_losses is None else max_losses) + 1
    letter = scene.letter()
    assert (letter.reason, letter.exception) == (Reason.LOST, "child_lost")
    assert (letter.attempts, letter.losses) == (runs, runs)
    # A replay has the same budget once more.
    assert spend(scene, replay(scene)) == runs


def test_a_replay_starts_the_losses_anew_and_not_the_attempts(scene: Scene) -> None:
    message = scene.publish()
    spend(scene, message)

    again = replay(scene)

    record = scene.record_of()
    assert (record.state, record.losses, record.attempt) == (State.QUEUED, 0, MAX_LOSSES + 1)
    assert (record.message, record.is_owed) == ("replayed", False)
    assert scene.ledger.dead_letter("task") is None
    assert isinstance(scene.ask(message), answers.Stale)
    assert spend(scene, again) == MAX_LOSSES + 1
    letter = scene.letter()
    assert letter.attempts == 2 * (MAX_LOSSES + 1)
    assert "replayed" in {line.what for line in letter.history}


def test_the_history_is_bounded(scene: Scene) -> None:
    message = scene.publish(max_losses=50)
    spend(scene, message)

    letter = scene.letter()
    assert [line.attempt for line in letter.history] == list(range(32, 52))


def test_an_entry_without_a_record_is_removed_by_discarding(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    scene.client.delete(scene.ledger.keys.record("task"))

    assert isinstance(scene.ledger.discard("task"), answers.Gone)
    assert scene.ledger.count_dead() == 0


def ended(scene: Scene, task_id: str = "task") -> EndedTask:
    found = scene.ledger.ended_task(task_id)
    assert found is not None
    return found


def lost_once(scene: Scene, task_id: str = "task") -> Claim:
    """Return the second attempt of a task whose first one was lost."""
    message = scene.publish(task_id)
    scene.lose(scene.claim(message))
    return scene.claim(message)


def test_one_in_so_many_of_these_is_kept_if_asked_for(scene: Scene) -> None:
    scene.ledger.sample_one_in = 3
    ids = [f"task {n}" for n in range(90)]
    for task_id in ids:
        scene.ledger.settle(scene.claim(scene.publish(task_id)), outcome="SUCCESS")

    kept = [one for one in map(scene.ledger.ended_task, ids) if one is not None]
    assert 15 <= len(kept) <= 45
    assert all(one.outcome == "SUCCESS" and one.history == () for one in kept)


def test_a_task_that_is_called_off_says_by_whom(scene: Scene) -> None:
    scene.lose(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.revoke("task", by="revoked"), Cancelled)

    found = ended(scene)
    (entry,) = found.history
    assert (found.outcome, found.by, entry.what) == ("REVOKED", "revoked", "lost")


def test_a_dead_letter_that_is_discarded_says_by_whom(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))

    assert isinstance(scene.ledger.discard("task", by="ada"), Cancelled)

    found = ended(scene)
    (entry,) = found.history
    assert (found.outcome, found.by, entry.what) == ("DISCARDED", "ada", "failed")
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

    ended_at = scene.ledger.keys.begin + "ended_at"
    for end in (settle, revoke, discard):
        what = end.__name__
        for n in range(4):
            end(f"{what} {n}")
        kept = [one.decode() for one in scene.client.zrange(ended_at, 0, -1, desc=True)]
        assert kept == [f"{what} 3", f"{what} 2"]
        assert scene.client.hlen(scene.ledger.keys.ended) == 2
