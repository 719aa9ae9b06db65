"""Dead letters by group: what a group has is what the dead letters say, whatever became of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_reliable.model import Cause, Group, Reason
from tests.ledger.driver.indexes import LOOK
from tests.ledger.scene import LOOK_MS, Scene

Counts = dict[Group, int]
KILLED = Group("lost", "child_lost", "", "app.work")


def fail(scene: Scene, task_id: str, exception: str = "ValueError: no") -> None:
    claim = scene.claim(scene.publish(task_id))
    scene.ledger.bury(claim, Reason.FAILED, exception=exception, traceback="")


def failed(type_: str) -> Group:
    return Group("failed", "", type_, "app.work")


def counts(scene: Scene) -> Counts:
    """What the index says, which agrees with the dead letters."""
    wrong, _, _ = scene.client.eval(LOOK, 0, scene.ledger.keys.begin).partition(b"\n\n")
    assert wrong == b""
    return {one.group: one.count for one in scene.ledger.groups.counts()}


@pytest.fixture
def letters(scene: Scene) -> Scene:
    """Six of them, in three groups."""
    for number in range(3):
        fail(scene, f"value-{number}")
    for number in range(2):
        fail(scene, f"key-{number}", "KeyError: 'x: y'")
    scene.lose(scene.claim(scene.publish("lost-0", max_losses=0)))
    return scene


def test_deaths_of_one_kind_are_one_group_whatever_the_process(scene: Scene) -> None:
    for number, detail in enumerate(
        ["signal 9 (SIGKILL), pid 1", "signal 9 (SIGKILL), pid 2", "exitcode 3, pid 4"]
    ):
        claim = scene.claim(scene.publish(f"task-{number}", max_losses=0))
        scene.ledger.lose(
            claim, Cause.CHILD_LOST, max_losses=0, due_in_ms=LOOK_MS, is_taken=False, detail=detail
        )

    assert {group.cause: count for group, count in counts(scene).items()} == {
        "child_lost, SIGKILL": 2,
        "child_lost, exit code 3": 1,
    }


# What becomes of letters.


def age_out(scene: Scene, task_id: str) -> None:
    ((_, buried_ms),) = [one for one in scene.ledger.letters_after(None, 100) if one[0] == task_id]
    scene.ledger.discard(task_id, buried_ms=buried_ms)


LEAVING: dict[str, Callable[[Scene, str], Any]] = {
    "replayed": lambda scene, task_id: scene.replay(task_id, f"0-{task_id}"),
    "discarded": lambda scene, task_id: scene.ledger.discard(task_id),
    "published anew": lambda scene, task_id: scene.publish(task_id),
    "aged out": age_out,
}


@pytest.mark.parametrize("how", LEAVING)
def test_what_is_no_letter_any_more_leaves_its_group(letters: Scene, how: str) -> None:
    assert counts(letters) == {failed("ValueError"): 3, failed("KeyError"): 2, KILLED: 1}

    LEAVING[how](letters, "value-1")
    LEAVING[how](letters, "lost-0")

    assert counts(letters) == {failed("ValueError"): 2, failed("KeyError"): 2}
    assert letters.ledger.groups.find(KILLED.id) is None


def test_a_message_that_nobody_can_read_is_a_letter_whatever_its_texts_hold(scene: Scene) -> None:
    for number, name in enumerate(("", "a\nb", "\udcff", "é" * 500)):
        scene.ledger.bury_message(
            f"{number} \n", Reason.UNPROCESSABLE, exception="one: two\nthree", traceback="",
            message="", name=name,
        )  # fmt: skip

    found = counts(scene)
    assert sorted(found.values()) == [1, 1, 1, 1]
    for group in found:
        assert scene.ledger.groups.find(group.id) == group
        ((task_id, _),) = scene.ledger.groups.letters_of(group.id, None, 9)
        assert task_id[1:] == " \n"
