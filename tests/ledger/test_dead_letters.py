"""Dead letters: what they keep, how they are listed, replayed and discarded."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from celery_reliable.ledger.answers.tasks import (
    Absent,
    Announced,
    Buried,
    Changed,
    Dead,
    Discarded,
    Fenced,
    NotDead,
    OtherGeneration,
    Replayed,
    Spent,
    Stale,
    Unrecorded,
)
from celery_reliable.model import Cause, DeadLetter, Reason, State
from tests.ledger.scene import ABSENT, LOOK_MS, MAX_LOSSES, Published, Scene
from tests.support.promises import promise
from tests.support.waiting import wait_for


def spend(scene: Scene, message: Published) -> int:
    """Lose attempts until the task is buried; return how many ran."""
    for runs in range(1, 100):
        if isinstance(scene.lose(scene.claim(message)), Spent):
            return runs
    raise AssertionError("never buried")


def replay(scene: Scene, task_id: str = "task", epoch: str = "0-replay") -> Published:
    answer = scene.ledger.replay(task_id, epoch=epoch, message="replayed", due_in_ms=LOOK_MS)
    if isinstance(answer, OtherGeneration):
        scene.ledger.generation = answer.current
        return replay(scene, task_id, epoch)
    assert isinstance(answer, Replayed)
    return Published(scene.foreign(task_id).task, epoch, scene.ledger.generation)


def letter_of(scene: Scene) -> DeadLetter:
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    return letter


def wait_until_after(scene: Scene, at_ms: int) -> None:
    wait_for(lambda: scene.workers.time_ms() > at_ms, 5, "the server's clock")


def bury_in_order(scene: Scene, *task_ids: str) -> None:
    """Bury tasks, each in a later millisecond than the one before."""
    for task_id in task_ids:
        wait_until_after(scene, scene.workers.time_ms())
        scene.bury(scene.claim(scene.publish(task_id)))


def test_a_failure_is_kept_with_all_that_is_known(scene: Scene) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message))
    claim = scene.claim(message, "other")
    traceback = 'Traceback:\n  "schrecklich" {}[] \\ ☠\n'
    scene.ledger.bury(claim, Reason.TIME_LIMIT, exception="Error: 'ü'", traceback=traceback)

    letter = scene.ledger.dead_letter("task")

    assert letter is not None
    assert (letter.name, letter.reason) == ("app.work", Reason.TIME_LIMIT)
    assert (letter.exception, letter.traceback) == ("Error: 'ü'", traceback)
    assert (letter.attempts, letter.losses) == (2, 1)
    assert letter.message == f"sent as {message.epoch}"
    assert 0 < letter.published_ms <= letter.buried_ms <= scene.workers.time_ms()
    # Celery stores a failure by itself.
    assert not letter.is_owed
    assert [(line.what, line.attempt, line.cause, line.owner) for line in letter.history] == [
        ("lost", 1, "child_lost", "me"),
        ("time_limit", 2, "Error: 'ü'", "other"),
    ]


@promise("poison-stops")
@pytest.mark.parametrize("max_losses", [None, 0, 5])
def test_a_poison_pill_is_buried_after_its_losses_and_one(
    scene: Scene, max_losses: int | None
) -> None:
    runs = spend(scene, scene.publish(max_losses=max_losses))

    assert runs == (MAX_LOSSES if max_losses is None else max_losses) + 1
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert (letter.reason, letter.exception) == (Reason.LOST, "child_lost")
    assert (letter.attempts, letter.losses) == (runs, runs)


def spend_all(scene: Scene) -> None:
    """Lose the task until it is buried."""
    spend(scene, scene.publish())


def run_out_of_time(scene: Scene) -> None:
    """Bury an attempt whose failure could not be stored."""
    claim = scene.claim(scene.publish())
    scene.ledger.bury(claim, Reason.TIME_LIMIT, exception="too long", traceback="", is_owed=True)


@pytest.mark.parametrize("bury", [spend_all, run_out_of_time])
def test_a_burial_that_is_owed_is_due_until_celery_was_told(
    scene: Scene, bury: Callable[[Scene], None]
) -> None:
    bury(scene)
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert letter.is_owed
    assert scene.overdue_ids() == ["task"]

    assert isinstance(scene.ledger.announced("task", letter.buried_ms - 1), Changed)
    assert scene.overdue_ids() == ["task"]
    assert isinstance(scene.ledger.announced("task", letter.buried_ms), Announced)

    assert scene.overdue_ids() == []
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert not letter.is_owed


def test_a_message_that_nobody_recorded_is_kept_as_it_came(scene: Scene) -> None:
    scene.ledger.bury_message(
        "task", Reason.UNPROCESSABLE, exception="KeyError", traceback="", message="raw", name="?"
    )

    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert (letter.message, letter.name, letter.attempts) == ("raw", "?", 0)
    assert scene.claim(replay(scene)).attempt == 1


def test_a_recorded_message_is_kept_as_it_was_recorded(scene: Scene) -> None:
    message = scene.publish()
    assert isinstance(scene.bury_message(message.epoch), Buried)

    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert (letter.message, letter.name) == (f"sent as {message.epoch}", "app.work")


def test_a_late_copy_that_no_worker_can_run_buries_nothing(scene: Scene) -> None:
    first = scene.publish()
    retry = scene.publish(claim=scene.claim(first))
    before = scene.snapshot()

    # The retry is queued; then it runs, has ended, and lives again.
    assert isinstance(scene.bury_message(first.epoch), Stale)
    assert scene.snapshot() == before
    claim = scene.claim(retry)
    assert isinstance(scene.bury_message(retry.epoch), Fenced)
    scene.ledger.settle(claim)
    assert isinstance(scene.bury_message(retry.epoch), Unrecorded)
    assert scene.state() == ABSENT
    scene.publish()
    assert isinstance(scene.bury_message(retry.epoch, is_unproved=True), Stale)
    assert scene.state() == "queued"


def test_a_message_whose_record_the_server_lost_is_a_dead_letter_of_its_epoch(
    scene: Scene,
) -> None:
    for _ in range(2):
        assert isinstance(scene.bury_message("0-x", is_unproved=True), Buried)
    # A copy of it is held off, one of another publication is none of its business.
    assert isinstance(scene.ask(Published(scene.foreign().task, "0-x", "1")), Dead)
    assert isinstance(scene.bury_message("0-y", is_unproved=True), Stale)


def test_a_replay_starts_the_losses_anew_and_not_the_attempts(scene: Scene) -> None:
    message = scene.publish()
    spend(scene, message)

    again = replay(scene)

    record = scene.record_of()
    assert (record.state, record.losses, record.attempt) == (State.QUEUED, 0, MAX_LOSSES + 1)
    assert (record.message, record.is_owed) == ("replayed", False)
    assert scene.ledger.dead_letter("task") is None
    assert isinstance(scene.ask(message), Stale)
    assert spend(scene, again) == MAX_LOSSES + 1
    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert letter.attempts == 2 * (MAX_LOSSES + 1)
    assert "replayed" in {line.what for line in letter.history}


def test_a_replay_is_stamped_with_the_generation_of_now(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    current, scene.ledger.generation = scene.ledger.generation, "1"
    before = scene.snapshot()

    answer = scene.ledger.replay("task", epoch="0-replay", message="m", due_in_ms=0)

    assert isinstance(answer, OtherGeneration)
    assert answer.current == current
    assert scene.snapshot() == before


def test_the_history_is_bounded(scene: Scene) -> None:
    message = scene.publish(max_losses=50)
    spend(scene, message)

    letter = scene.ledger.dead_letter("task")
    assert letter is not None
    assert [line.attempt for line in letter.history] == list(range(32, 52))


def test_discarding_compares_with_what_was_seen(scene: Scene) -> None:
    bury_in_order(scene, "task")
    seen = scene.ledger.dead_letter("task")
    assert seen is not None
    claim = scene.claim(replay(scene))
    assert isinstance(scene.ledger.discard("task", buried_ms=seen.buried_ms), NotDead)
    wait_until_after(scene, seen.buried_ms)
    scene.bury(claim)
    before = scene.snapshot()

    # It is dead once more, and that is another burial than the one that was seen.
    assert isinstance(scene.ledger.discard("task", buried_ms=seen.buried_ms), NotDead)
    assert scene.snapshot() == before
    assert isinstance(scene.ledger.discard("task"), Discarded)
    assert scene.ledger.count_dead() == 0


def test_only_a_letter_that_is_too_many_is_counted_as_trimmed_and_once(scene: Scene) -> None:
    bury_in_order(scene, "asked", "surplus")
    meta = scene.ledger.keys.meta
    assert isinstance(scene.ledger.discard("asked"), Discarded)
    assert scene.client.hmget(meta, "trimmed", "trimmed_ms") == [None, None]

    before_ms = scene.workers.time_ms()
    scene.ledger.discard("surplus", is_surplus=True)
    scene.ledger.discard("surplus", is_surplus=True)

    count, at_ms = scene.client.hmget(meta, "trimmed", "trimmed_ms")
    assert count == b"1"
    assert before_ms <= int(at_ms) <= scene.workers.time_ms()


def test_listing_is_by_the_time_of_burial(scene: Scene) -> None:
    bury_in_order(scene, "c", "a", "b")
    letters = scene.ledger.dead_letters(["a", "nothing", "b"])
    assert letters[0] is not None
    middle_ms = letters[0].buried_ms

    assert [letter.task_id if letter else None for letter in letters] == ["a", None, "b"]
    assert scene.ledger.dead_ids() == ["b", "a", "c"]
    assert scene.ledger.dead_ids(1) == ["b"]
    assert [task_id for task_id, _ in scene.ledger.oldest_dead(2)] == ["c", "a"]
    assert scene.ledger.oldest_dead(2)[1] == ("a", middle_ms)
    assert scene.ledger.count_dead() == 3


def test_a_task_that_lives_is_no_dead_letter(scene: Scene) -> None:
    scene.publish()

    assert scene.ledger.dead_letter("task") is None
    assert scene.ledger.dead_letters([]) == []


def test_an_entry_without_a_record_is_removed_by_discarding(scene: Scene) -> None:
    bury_in_order(scene, "task")
    scene.client.delete(scene.ledger.keys.record("task"))

    assert isinstance(scene.ledger.discard("task"), Absent)
    assert scene.ledger.count_dead() == 0


def test_the_history_says_what_is_known_of_a_loss(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.ledger.lose(
        claim, Cause.CHILD_LOST, max_losses=0, due_in_ms=LOOK_MS, detail="signal 9 (SIGKILL), pid 7"
    )

    letter = letter_of(scene)
    assert letter.exception == "child_lost: signal 9 (SIGKILL), pid 7"
    assert letter.history[0].cause == letter.exception


def test_retries_are_in_the_history_and_drive_nothing_out_of_it(scene: Scene) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message))
    for _ in range(30):
        message = scene.publish(claim=scene.claim(message))
    scene.lose(scene.claim(message))
    message = scene.publish(claim=scene.claim(message))
    scene.bury(scene.claim(message))

    assert [(line.what, line.attempt, line.cause) for line in letter_of(scene).history] == [
        ("lost", 1, "child_lost"),
        ("retried", 31, "30 times"),
        ("lost", 32, "child_lost"),
        ("retried", 33, ""),
        ("failed", 34, "ValueError: no"),
    ]
    assert {line.owner for line in letter_of(scene).history} == {"me"}


@pytest.mark.parametrize("how", ["retry", "replay"])
def test_a_task_that_goes_on_was_published_when_it_was_first(scene: Scene, how: str) -> None:
    claim = scene.claim(scene.publish())
    first_ms = scene.record_of().published_ms
    scene.client.hincrby(scene.ledger.keys.record("task"), "published_ms", -90_000)
    if how == "retry":
        scene.publish(claim=claim)
    else:
        scene.bury(claim)
        replay(scene)

    record = scene.record_of()
    assert record.published_ms == first_ms - 90_000
    # What looks whether its message has waited for long goes by when it was sent.
    assert record.sent_ms >= first_ms


def test_an_id_that_is_published_anew_was_published_then(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    scene.client.hincrby(scene.ledger.keys.record("task"), "published_ms", -90_000)
    before_ms = scene.record_of().published_ms

    scene.publish()

    assert scene.record_of().published_ms >= before_ms + 90_000


def test_a_history_that_a_later_version_wrote_can_be_read(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    told = [{"at_ms": 5, "what": "abducted", "by": "aliens"}]
    scene.client.hset(scene.ledger.keys.record("task"), "history", json.dumps(told))

    (line,) = letter_of(scene).history
    assert (line.at_ms, line.what, line.attempt, line.cause) == (5, "abducted", 0, "")


def test_how_often_an_id_may_be_lost_is_said_by_its_last_publication(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish(max_losses=0)))
    assert scene.record_of().max_losses == 0

    again = scene.publish()

    assert scene.record_of().max_losses is None
    scene.publish(claim=scene.claim(again), max_losses=7)
    assert scene.record_of().max_losses == 7
