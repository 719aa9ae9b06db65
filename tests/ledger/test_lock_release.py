"""Whatever ends a task frees its object in the same step, and nothing else that is locked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from celery_reliable.leases import Verdict, WorkerLease
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.ledger.answers.objects import OtherObject
from celery_reliable.ledger.answers.tasks import (
    Buried,
    Cancelled,
    Discarded,
    Fenced,
    Outlived,
    Recorded,
    Settled,
    Spent,
    Troubled,
    Withdrawn,
)
from celery_reliable.ledger.answers.workers import Acknowledged
from celery_reliable.model import Claim
from tests.ledger.scene import ABSENT, LOOK_MS, Scene, attempt_zero, holding
from tests.support.promises import promise

KEEP_MS = 60_000


def holder(scene: Scene, object_key: str = "object") -> str | None:
    value = scene.client.get(scene.ledger.keys.lock(object_key))
    return None if value is None else value.decode()


def note(scene: Scene) -> str | None:
    """What the record says that its task has locked."""
    value = scene.client.hget(scene.ledger.keys.record("task"), "object")
    return None if value is None else value.decode()


# Tasks that hold the object.


def queued(scene: Scene) -> Claim:
    """A unique publication that nobody has claimed."""
    scene.publish()
    scene.locks.take("object", holding(scene))
    return attempt_zero()


def running(scene: Scene) -> Claim:
    claim = scene.claim(scene.publish())
    scene.locks.take("object", claim)
    return claim


def running_again(scene: Scene) -> Claim:
    """An older attempt has left its lock, and this one has not come to it."""
    message = scene.publish()
    first = scene.claim(message)
    scene.locks.take("object", first)
    scene.lose(first)
    return scene.claim(message)


def lost(scene: Scene) -> Claim:
    claim = running(scene)
    scene.lose(claim)
    return claim


def waiting(scene: Scene) -> Claim:
    claim = running(scene)
    scene.ledger.replace(claim, due_in_ms=LOOK_MS)
    return claim


def dead_stopping(scene: Scene) -> Claim:
    claim = running(scene)
    scene.take(claim, max_losses=0)
    return claim


def dead(scene: Scene) -> Claim:
    """A dead letter that still notes its object."""
    claim = dead_stopping(scene)
    scene.client.hdel(scene.ledger.keys.record("task"), "stopping", "stopping_on")
    return claim


# What ends a task, or what is left of it.


def settle(scene: Scene, claim: Claim) -> Answer:
    return scene.ledger.settle(claim)


def settle_and_keep(scene: Scene, claim: Claim) -> Answer:
    return scene.ledger.settle(claim, keep_ms=KEEP_MS)


def bury(scene: Scene, claim: Claim) -> Answer:
    return scene.bury(claim)


def lose(scene: Scene, claim: Claim) -> Answer:
    return scene.lose(claim, max_losses=0)


def withdraw(scene: Scene, claim: Claim) -> Answer:
    return scene.ledger.withdraw("task", scene.record_of().epoch)


def cancel(scene: Scene, claim: Claim) -> Answer:
    return scene.ledger.revoke("task")


def bury_message(scene: Scene, claim: Claim) -> Answer:
    return scene.bury_message(scene.record_of().epoch)


def blame(scene: Scene, claim: Claim) -> Answer:
    lease = WorkerLease(
        "the dead",
        True,
        0,
        "",
        "",
        "",
        opening_id="task",
        opening_epoch=scene.record_of().epoch,
        verdict=Verdict("opening"),
    )
    return scene.ledger.blame(lease, "opening", max_losses=0, due_in_ms=LOOK_MS)


def discard(scene: Scene, claim: Claim) -> Answer:
    return scene.ledger.discard("task")


def acknowledge(scene: Scene, claim: Claim) -> Answer:
    return scene.workers.acknowledge(claim)


def outlive(scene: Scene, claim: Claim) -> Answer:
    scene.kill_worker("me")
    assert scene.ledger.is_outlived("task", "me")
    return Outlived()


Stage = Callable[[Scene], Claim]
Ending = Callable[[Scene, Claim], Answer]

STAGES: dict[Ending, tuple[list[Stage], type[Answer]]] = {
    settle: ([running, running_again], Settled),
    bury: ([running, running_again], Buried),
    lose: ([running, running_again], Spent),
    withdraw: ([queued], Withdrawn),
    cancel: ([queued, lost, waiting], Cancelled),
    bury_message: ([queued, lost], Buried),
    blame: ([queued, lost], Spent),
    discard: ([dead], Discarded),
    acknowledge: ([dead_stopping], Acknowledged),
    outlive: ([dead_stopping], Outlived),
}
ENDS = [
    pytest.param(stage, ending, reply, id=f"{ending.__name__}-{stage.__name__}")
    for ending, (stages, reply) in STAGES.items()
    for stage in stages
]


@promise("one-object")
@pytest.mark.parametrize(("stage", "ending", "reply"), ENDS)
def test_whatever_ends_a_task_frees_its_object(
    scene: Scene, stage: Stage, ending: Ending, reply: type[Answer]
) -> None:
    # As somebody else ends it, who does not know of an object.
    claim = replace(stage(scene), object_key="")
    assert holder(scene) is not None

    assert isinstance(ending(scene, claim), reply)

    assert (holder(scene), note(scene)) == (None, None)
    assert scene.state() in (ABSENT, "dead")
    assert scene.index_faults() == []


@pytest.mark.parametrize("value", ["1:another", "12:another:task", "kept:task", "kept:another"])
@pytest.mark.parametrize(("stage", "ending", "reply"), ENDS)
def test_what_another_has_or_what_is_kept_is_not_freed(
    scene: Scene, stage: Stage, ending: Ending, reply: type[Answer], value: str
) -> None:
    claim = stage(scene)
    scene.client.set(scene.ledger.keys.lock("object"), value)

    assert isinstance(ending(scene, claim), reply)

    assert holder(scene) == value


@pytest.mark.parametrize(("stage", "ending", "reply"), ENDS)
def test_what_an_older_version_left_without_a_note_is_anybodys(
    scene: Scene, stage: Stage, ending: Ending, reply: type[Answer]
) -> None:
    claim = stage(scene)
    scene.forget_object()
    other = scene.claim(scene.publish("other task"), "other")

    assert isinstance(ending(scene, claim), reply)

    assert scene.locks.take("object", other) is None


@pytest.mark.parametrize("ending", [settle, bury, lose])
def test_who_knows_the_object_frees_what_an_older_version_did_not_note(
    scene: Scene, ending: Ending
) -> None:
    claim = replace(running(scene), object_key="object")
    scene.forget_object()

    ending(scene, claim)

    assert holder(scene) is None


class Steps:
    """The steps on the ledger, and what was in Redis after each."""

    def __init__(self, scene: Scene) -> None:
        self.replies: list[type[Answer]] = []
        self.snapshots = [scene.snapshot()]
        call = scene.ledger._caller.run

        def watched(*args: Any, **options: Any) -> Answer:
            answer: Answer = call(*args, **options)
            self.replies.append(type(answer))
            self.snapshots.append(scene.snapshot())
            return answer

        scene.ledger._caller.run = watched  # type: ignore[assignment]


@pytest.mark.parametrize(("stage", "ending", "reply"), ENDS)
def test_who_does_not_know_the_object_changes_nothing_and_asks_again(
    scene: Scene, stage: Stage, ending: Ending, reply: type[Answer]
) -> None:
    claim = replace(stage(scene), object_key="")
    if ending is outlive:
        scene.client.zadd(scene.ledger.keys.workers, {"me": 0})
        scene.workers.declare(scene.lease("me"), "lapsed", witness_ms=0)
        steps = Steps(scene)
        assert scene.ledger.is_outlived("task", "me")
    else:
        steps = Steps(scene)
        ending(scene, claim)

    # A history is asked for likewise.
    assert [one for one in steps.replies if one is not Troubled] == [OtherObject, reply]
    assert steps.snapshots[-2] == steps.snapshots[0]
    assert steps.snapshots[-1] != steps.snapshots[0]


@pytest.mark.parametrize("ending", [settle, settle_and_keep, bury, lose])
@pytest.mark.parametrize("has_object", [False, True])
def test_an_attempt_ends_in_one_step_with_its_object_or_without(
    scene: Scene, ending: Ending, has_object: bool
) -> None:
    claim = scene.claim(scene.publish())
    if has_object:
        scene.locks.take("object", claim)
        claim = replace(claim, object_key="object")
    steps = Steps(scene)

    ending(scene, claim)

    assert len(steps.replies) == 1


@pytest.mark.parametrize("ending", [cancel, withdraw, bury_message, blame])
def test_a_task_without_an_object_is_ended_in_one_step(scene: Scene, ending: Ending) -> None:
    scene.publish()
    steps = Steps(scene)

    ending(scene, attempt_zero())

    assert len(steps.replies) == 1


def test_who_was_told_of_an_object_that_has_changed_is_told_again(scene: Scene) -> None:
    claim = running(scene)
    call = scene.ledger._caller.run
    told: list[type[Answer]] = []

    def slow(*args: Any, **options: Any) -> Answer:
        if told == [OtherObject]:
            # It is lost, runs again, and works on another object.
            scene.locks.take("another object", claim)
        answer: Answer = call(*args, **options)
        told.append(type(answer))
        return answer

    scene.ledger._caller.run = slow  # type: ignore[assignment]

    assert isinstance(scene.ledger.settle(claim), Settled)

    assert told == [OtherObject, OtherObject, Settled]
    assert holder(scene, "another object") is None
    # What it had before is anybody's.
    assert scene.locks.take("object", scene.claim(scene.publish("third"))) is None


@pytest.mark.parametrize("ending", [settle, bury, lose])
def test_an_attempt_that_is_not_the_current_one_frees_nothing(scene: Scene, ending: Ending) -> None:
    message = scene.publish()
    former = replace(scene.claim(message), object_key="object")
    scene.locks.take("object", former)
    scene.lose(former)
    current = scene.claim(message)
    scene.locks.take("object", current)
    before = scene.snapshot()

    assert isinstance(ending(scene, former), Fenced)
    assert scene.snapshot() == before


@promise("never-two")
@pytest.mark.parametrize("ending", [bury_message, blame, cancel])
def test_what_is_still_to_be_stopped_has_its_object_though_its_task_ends(
    scene: Scene, ending: Ending
) -> None:
    claim = running(scene)
    scene.take(claim)

    steps = Steps(scene)
    ending(scene, claim)

    assert OtherObject not in steps.replies
    assert (holder(scene), note(scene)) == ("1:task", "object")
    other = scene.claim(scene.publish("other task"), "other")
    assert scene.locks.take("object", other) == "task"


def test_a_dead_letter_is_discarded_in_one_step_while_it_is_still_to_be_stopped(
    scene: Scene,
) -> None:
    dead_stopping(scene)
    steps = Steps(scene)

    discard(scene, attempt_zero())

    assert steps.replies == [Discarded]
    assert (holder(scene), note(scene)) == ("1:task", "object")


@promise("one-object")
@pytest.mark.parametrize("end", [acknowledge, outlive])
def test_a_task_that_goes_on_when_it_has_been_stopped_has_its_object_still(
    scene: Scene, end: Ending
) -> None:
    claim = running(scene)
    scene.take(claim)

    end(scene, claim)

    assert (holder(scene), note(scene)) == ("1:task", "object")


@pytest.mark.parametrize("ending", [bury_message, blame, lose, discard])
def test_when_it_has_been_stopped_its_object_is_freed(scene: Scene, ending: Ending) -> None:
    claim = running(scene)
    scene.take(claim, max_losses=0 if ending in (lose, discard) else 9)
    if ending is not lose:
        ending(scene, claim)

    scene.workers.acknowledge(claim)

    if ending is discard:
        # It is due, and somebody lets its record go.
        assert scene.overdue_ids() == ["task"]
        scene.ledger.let_go("task")
    assert (holder(scene), note(scene)) == (None, None)
    assert scene.index_faults() == []


@pytest.mark.parametrize("value", ["0:task", "1:task"])
def test_a_success_may_keep_the_object(scene: Scene, value: str) -> None:
    claim = running(scene)
    scene.client.set(scene.ledger.keys.lock("object"), value)

    assert isinstance(scene.ledger.settle(claim, keep_ms=KEEP_MS), Settled)

    assert holder(scene) == "kept:task"
    assert 0 < scene.client.pttl(scene.ledger.keys.lock("object")) <= KEEP_MS
    assert scene.locks.take("object", scene.claim(scene.publish("other task"))) == "task"


@pytest.mark.parametrize("value", ["1:another", "kept:another", None])
def test_a_success_keeps_nothing_of_another(scene: Scene, value: str | None) -> None:
    claim = running(scene)
    key = scene.ledger.keys.lock("object")
    scene.client.delete(key) if value is None else scene.client.set(key, value)

    assert isinstance(scene.ledger.settle(claim, keep_ms=KEEP_MS), Settled)

    assert holder(scene) == value


def test_a_settlement_that_is_refused_keeps_nothing(scene: Scene) -> None:
    claim = lost(scene)

    assert isinstance(scene.ledger.settle(claim, keep_ms=KEEP_MS), Fenced)

    assert holder(scene) == "1:task"


def test_an_attempt_whose_task_goes_on_notes_no_object_any_more(scene: Scene) -> None:
    claim = running(scene)
    scene.publish(claim=claim)

    assert scene.locks.free("object", claim)

    assert (holder(scene), note(scene)) == (None, None)


@promise("one-object")
def test_a_canvas_that_is_quicker_than_its_host_does_not_free_what_that_still_works_on(
    scene: Scene,
) -> None:
    host = running(scene)
    scene.ledger.bequeath(host, heir="canvas")
    last = scene.record(scene.foreign().task, "0-heir", heir="canvas")
    assert isinstance(last, Recorded)
    message = replace(scene.foreign(), epoch="0-heir", generation=scene.ledger.generation)

    assert isinstance(scene.ledger.settle(scene.claim(message)), Settled)

    assert holder(scene) == "1:task"
    assert scene.locks.free("object", host)
