"""What an attempt's number and its claim's token are for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from celery_reliable.ledger import answers
from celery_reliable.model import State
from tests.ledger.scene import LOOK_MS, Published, Scene


def test_an_attempt_that_waits_for_its_object_gives_its_number_back(scene: Scene) -> None:
    message = scene.publish()
    scene.lose(scene.claim(message))
    waiting = scene.claim(message)
    epoch = f"{waiting.attempt - 1}-wait"
    again = Published(message.task, epoch, message.generation)

    for _ in range(2):
        answer = scene.record(message.task, epoch, claim=waiting, waits_for="object")
        assert isinstance(answer, answers.Recorded)

    current = scene.claim(again)
    assert current.attempt == waiting.attempt == 2
    assert current.token != waiting.token
    assert current.losses == 1
    # Whatever it says late is not the current one's, though they have one number.
    before = scene.snapshot()
    replies = {
        type(scene.ledger.touch(waiting, time_to_run_ms=0)),
        type(scene.ledger.settle(waiting)),
        type(scene.ledger.replace(waiting, due_in_ms=0)),
        type(scene.ledger.release(waiting, due_in_ms=0)),
        type(scene.lose(waiting)),
        type(scene.bury(waiting)),
        type(scene.record(message.task, "1-late", claim=waiting, waits_for="object")),
    }
    assert replies == {answers.Fenced, answers.NotCurrent}
    assert scene.snapshot() == before
    assert isinstance(scene.bury(current), answers.Buried)
    # It has run nothing, and nothing of it is in the history.
    letter = scene.letter()
    assert [(entry.what, entry.attempt) for entry in letter.history] == [("lost", 1), ("failed", 2)]


def test_only_its_canvas_may_publish_the_id_of_an_attempt_that_is_replaced(scene: Scene) -> None:
    message = scene.publish()
    claim = scene.claim(message)
    assert isinstance(scene.ledger.bequeath(claim, heir="mine"), answers.Bequeathed)
    # Whoever derives the id from a row, and the canvas of an attempt that was lost before.
    for heir in ("", "another's", "1"):
        answer = scene.record(message.task, "0-row", heir=heir)
        assert answer == answers.InUse("running", scene.record_of().claimed_ms)
    assert isinstance(scene.ledger.replace(claim, due_in_ms=LOOK_MS), answers.Waiting)
    for heir in ("", "another's", "1"):
        answer = scene.record(message.task, "0-row", heir=heir)
        assert answer == answers.InUse("waiting", scene.record_of().waiting_ms)

    assert isinstance(scene.record(message.task, "0-last", heir="mine"), answers.Recorded)

    # It is published once, and its attempts are counted on.
    assert isinstance(scene.record(message.task, "0-again", heir="mine"), answers.InUse)
    last = Published(message.task, "0-last", message.generation)
    assert scene.claim(last).attempt == 2


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_quick_canvas_takes_the_id_over_while_the_attempt_still_runs(
    scene: Scene, is_dead: bool
) -> None:
    """Its claim outlives the attempt, and must not keep its worker from being forgotten."""
    message = scene.publish()
    claim = scene.claim(message, token="delivered")
    scene.ledger.bequeath(claim, heir="mine")
    assert isinstance(scene.record(message.task, "0-last", heir="mine"), answers.Recorded)
    # Another attempt's end is not its own.
    scene.ledger.replace(replace(claim, token="another"), due_in_ms=LOOK_MS)
    if is_dead:
        scene.kill_worker("me")
    assert not scene.workers.deregister("me", in_unacked=0)

    over = scene.lose(claim) if is_dead else scene.ledger.replace(claim, due_in_ms=LOOK_MS)

    assert isinstance(over, answers.Fenced)
    assert scene.workers.deregister("me", in_unacked=0)
    last = Published(message.task, "0-last", message.generation)
    assert scene.claim(last, "other").attempt == 2


def test_a_canvas_knows_which_result_its_id_had_before(scene: Scene) -> None:
    for stored in ("", "of before"):
        claim = scene.claim(scene.publish(f"after {stored}"))
        scene.ledger.replace(claim, due_in_ms=LOOK_MS, stored=stored)
        assert scene.record_of(claim.task_id).stored == stored


def test_it_is_known_of_an_id_whether_it_may_have_left_a_result(scene: Scene) -> None:
    for is_used in (False, True):
        task = scene.foreign(f"used {is_used}").task
        scene.publish("learn the generation")
        scene.ledger.revoke("learn the generation")
        answer = scene.ledger.record(
            task, epoch="0-1", state=State.QUEUED, due_in_ms=0, message="", is_used=is_used
        )
        assert isinstance(answer, answers.Recorded)
        assert scene.record_of(task.id).is_used is is_used
        claim = scene.claim(Published(task, "0-1", scene.ledger.generation))
        assert scene.ledger.bequeath(claim, heir="x") == answers.Bequeathed(is_used)
        scene.bury(claim)
        scene.ledger.replay(task.id, epoch="1-replay", message="", due_in_ms=0)
        assert scene.record_of(task.id).is_used
    scene.claim(scene.foreign("adopted"))
    assert scene.record_of("adopted").is_used
    scene.bury(scene.claim(scene.publish("dead")))
    scene.publish("dead")
    assert scene.record_of("dead").is_used


@pytest.mark.parametrize("how", ["lost", "released"])
def test_a_claim_that_comes_late_takes_nothing(scene: Scene, how: str) -> None:
    """Over a connection that was given up, when the attempt that it began is over."""
    message = scene.publish()
    for n in range(1, 4):
        claim = scene.claim(message, token=f"delivery-{n}")
        assert claim.attempt == n
        if how == "lost":
            scene.lose(claim, max_losses=10)
        else:
            scene.ledger.release(claim, due_in_ms=1000)
        before = scene.snapshot()
        for m in range(1, n + 1):
            answer = scene.ask(message, token=f"delivery-{m}")
            assert isinstance(answer, answers.Stale)
        assert scene.snapshot() == before
    # Who was delivered the message anew begins.
    assert scene.claim(message, token="delivery-11").attempt == 4


def test_what_nobody_recorded_has_the_limit_of_its_task(scene: Scene) -> None:
    foreign = scene.foreign()
    limited = replace(foreign, task=replace(foreign.task, max_losses=7))

    scene.claim(limited)

    assert scene.record_of().max_losses == 7
