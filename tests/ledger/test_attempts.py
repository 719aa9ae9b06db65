"""What an attempt's number and its claim's token are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from celery_reliable.ledger import answers
from celery_reliable.model import State
from tests.ledger.scene import LOOK_MS, Published, Scene
from tests.support.promises import promise


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_quick_canvas_takes_the_id_over_while_the_attempt_still_runs(
    scene: Scene, is_dead: bool
) -> None:
    """Its claim outlives the attempt, and must not keep its worker from being forgotten."""
    message = scene.publish()
    claim = scene.claim(message, token="delivered")
    scene.ledger.touch(claim, heir="mine")
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
        assert scene.ledger.touch(claim, heir="x") == answers.Touched(is_used)
        scene.bury(claim)
        scene.replay(task.id, due_in_ms=0)
        assert scene.record_of(task.id).is_used
    scene.claim(scene.foreign("adopted"))
    assert scene.record_of("adopted").is_used
    scene.bury(scene.claim(scene.publish("dead")))
    scene.publish("dead")
    assert scene.record_of("dead").is_used


def test_what_nobody_recorded_has_the_limit_of_its_task(scene: Scene) -> None:
    foreign = scene.foreign()
    limited = replace(foreign, task=replace(foreign.task, max_losses=7))

    scene.claim(limited)

    assert scene.record_of().max_losses == 7

    # And not that of a task which had the id before, and of which something is still to be stopped.
    scene.take(scene.claim(scene.publish("other", max_losses=7)))
    scene.ledger.revoke("other")
    scene.ask(scene.foreign("other"), content="as delivered")
    assert scene.record_of("other").max_losses is None


def stay(scene: Scene) -> None:
    """Its next publication waits for a worker."""
    scene.publish()


def run(scene: Scene) -> None:
    scene.claim(scene.publish())


def be_foreign(scene: Scene) -> None:
    """Somebody without the package has published it."""
    scene.claim(scene.foreign())


@promise("nothing-lost")
@pytest.mark.parametrize("go_on", [stay, run, be_foreign])
def test_a_revocation_that_comes_late_means_nothing_that_was_published_after(
    scene: Scene, go_on: Callable[[Scene], None]
) -> None:
    scene.publish()
    calls = scene.noted()
    assert isinstance(scene.ledger.revoke("task", if_running="finish"), answers.Cancelled)
    (revoke,) = calls
    go_on(scene)
    once = scene.snapshot()

    revoke()

    assert scene.snapshot() == once
