"""Publishing again with a key: what becomes of the task that has it."""

from __future__ import annotations

from typing import Any

import pytest

from celery_reliable.ledger.answers import Anothers, InUse, Recorded
from celery_reliable.model import State, TaskRef
from tests.ledger.scene import LOOK_MS, Published, Scene

TASK = TaskRef("task", "app.work")


def publish(scene: Scene, how: str, epoch: str = "", task: TaskRef = TASK) -> Any:
    """Record a publication of the key that says what to do if it exists."""
    return scene.ledger.record(
        task, epoch=epoch or scene.ledger.senders.new_epoch(0), state=State.QUEUED,
        due_in_ms=LOOK_MS, message="the second message", if_exists=how,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["keep", "replay_dead", "refuse", ""])
def test_an_id_is_one_tasks_while_that_lives_or_is_a_dead_letter(scene: Scene, how: str) -> None:
    other, third = TaskRef("task", "app.other"), TaskRef("task", "app.third")

    def told(how: str, task: TaskRef = other) -> Any:
        epoch = scene.ledger.senders.new_epoch(0)
        answer = publish(scene, how, epoch, task)
        scene.ledger.senders.answered(epoch)
        return answer

    published = scene.publish()
    sent_ms = scene.record_of().published_ms
    before = scene.client.hgetall(scene.ledger.keys.record("task"))
    epoch = scene.ledger.senders.new_epoch(0)
    assert publish(scene, how, epoch, other) == Anothers("queued", sent_ms, "app.work")
    # A publisher that did not get the answer asks again.
    assert publish(scene, how, epoch, other) == Anothers("queued", sent_ms, "app.work")
    scene.ledger.senders.answered(epoch)
    assert scene.client.hgetall(scene.ledger.keys.record("task")) == before

    # The attempt replaces its task by another one, which gets the id.
    claim = scene.claim(published)
    scene.record(other, "1-replaced", claim=claim)
    since_ms = scene.record_of().since_ms
    # A canvas's host that runs again publishes once more what it gave the id to.
    assert told("keep", TASK) == told("keep") == InUse("queued", since_ms)
    assert told(how, third) == Anothers("queued", since_ms, "app.work")

    scene.bury(scene.claim(Published(other, "1-replaced", published.generation)))
    letter = scene.letter()
    assert told(how, third) == Anothers("dead", letter.buried_ms, "app.work")
    assert told("keep") == InUse("dead", letter.buried_ms)
    assert scene.ledger.dead_letter("task") == letter

    # What has ended has no id any more.
    assert isinstance(told("", TASK), Recorded)
    again = Published(TASK, scene.record_of().epoch, published.generation)
    scene.ledger.settle(scene.claim(again))
    assert isinstance(told(how), Recorded)


def test_what_was_called_off_leaves_no_name_to_the_next_task_of_its_id(scene: Scene) -> None:
    other = TaskRef("task", "app.other")
    published = scene.publish()
    scene.record(other, "1-replaced", claim=scene.claim(published))
    scene.take(scene.claim(Published(other, "1-replaced", published.generation)))
    # Its worker has still to stop it.
    scene.ledger.revoke("task")
    assert scene.record_of().is_called_off

    assert isinstance(publish(scene, "", task=TaskRef("task", "app.third")), Recorded)

    epoch = scene.ledger.senders.new_epoch(0)
    assert publish(scene, "keep", epoch, TASK) == Anothers(
        "queued", scene.record_of().since_ms, "app.third"
    )
