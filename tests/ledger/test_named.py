"""Tasks that only some workers may run: how they wait, and which workers live."""

from __future__ import annotations

import pytest

from celery_reliable.ledger import Resent, answers
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import State
from tests.ledger.scene import LEASE_MS, Published, Scene

FAR_MS = 3_600_000


def park(scene: Scene) -> Answer:
    return scene.ledger.named.park(scene.seen_due(), '{"only": ["gpu"]}', due_in_ms=FAR_MS)


def test_what_waits_for_a_worker_is_known_and_due_as_soon_as_one_is_there(scene: Scene) -> None:
    named = scene.ledger.named
    scene.publish()

    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=9), answers.Send)
    assert scene.record_of().resends == 1
    assert park(scene) == answers.Unplaced(is_new=True)

    assert scene.state() == "parked"
    # It has no message that was sent in vain.
    assert scene.record_of().resends == 0
    assert scene.ledger.due(9).dues == ()
    assert (named.waiting(), list(named.each_waiting())) == (1, [[("task", '{"only": ["gpu"]}')]])
    assert park(scene) == answers.Unplaced(is_new=False)
    assert named.wake_all(["task"], is_there=False) == [answers.StillWaiting()]
    assert scene.ledger.due(9).dues == ()
    assert named.wake_all(["task"]) == [answers.Woken()]
    (due,) = scene.ledger.due(9).dues
    epoch, before = scene.record_of().epoch, scene.snapshot()
    # A message takes the place of its own publication only.
    late = Resent("late", "another", "another")
    assert scene.ledger.resend(due, due_in_ms=9, message=late) == answers.Changed()
    assert scene.snapshot() == before
    answer = scene.ledger.resend(due, due_in_ms=9, message=Resent("to gpu", epoch, epoch))
    assert isinstance(answer, answers.Send)
    assert answer.message == "to gpu"
    # From now on it is the message, and nothing waits.
    assert (scene.record_of().message, scene.state()) == ("to gpu", "queued")
    assert scene.record_of().waiting_for == ""
    assert named.waiting() == 0
    assert named.wake_all(["task"]) == [answers.Changed()]


def test_what_was_called_off_while_it_waited_waits_no_more(scene: Scene) -> None:
    named = scene.ledger.named
    message = scene.publish(state=State.PARKED)
    park(scene)
    scene.ledger.cancel("task", epoch=message.epoch)

    named.wake_all(["task"], is_there=False)

    assert named.waiting() == 0
    assert scene.ledger.due(9).dues == ()


def test_a_queue_is_forgotten_unless_a_worker_has_registered_for_it(scene: Scene) -> None:
    named = scene.ledger.named
    facts = {"nodename": "gpu-a@h", "direct": "gpu-a@h.dq2"}
    scene.workers.register("a", lease_ms=LEASE_MS, client_id=0, facts=facts)
    ((queue, at),) = named.queues()

    assert named.unlist(queue, "1") == answers.Changed()
    assert named.unlist(queue, at) == answers.Unlisted()

    assert named.queues() == []


def test_a_move_that_is_repeated_or_comes_late_changes_nothing(scene: Scene) -> None:
    scene.publish()
    seen = scene.record_of()
    scene.move("0-new")
    scene.move("0-newer")
    before = scene.snapshot()

    assert scene.move("0-new", seen=seen, message="late") == answers.Changed()
    assert scene.move("0-newer") == answers.Moved()
    assert scene.snapshot() == before


@pytest.mark.parametrize("how", ["lost", "released"])
def test_the_attempt_after_it_is_for_the_workers_that_were_named(scene: Scene, how: str) -> None:
    message = scene.publish()
    mine = scene.claim(message)
    scene.move("1-new")

    if how == "lost":
        scene.lose(mine)
    else:
        scene.ledger.release(mine, due_in_ms=FAR_MS)

    # The message comes back from the worker's hash.
    assert scene.ask(message, "me") == answers.Stale()
    (due,) = scene.ledger.due(9).dues
    answer = scene.ledger.resend(due, due_in_ms=9)
    assert isinstance(answer, answers.Send)
    assert answer.message == "message 1-new"
    assert scene.record_of().epoch == "1-new"
    # Its message names them, so its own retry need not be told, and is what is sent after its loss.
    second = scene.claim(Published(message.task, "1-new", scene.ledger.generation))
    retry = scene.ledger.senders.new_epoch(second.attempt)
    assert scene.record(message.task, retry, claim=second) == answers.Recorded()
    scene.lose(scene.claim(Published(message.task, retry, scene.ledger.generation)))
    assert scene.record_of().epoch == retry


def test_what_is_released_is_sent_from_its_record_where_no_message_comes_back(
    scene: Scene,
) -> None:
    for is_unsent in (False, True):
        name = f"unsent {is_unsent}"
        scene.ledger.release(scene.claim(scene.publish(name)), due_in_ms=9, is_unsent=is_unsent)
        assert scene.record_of(name).is_unsent is is_unsent


def test_what_waits_for_a_worker_is_looked_at_as_soon_as_others_are_named(scene: Scene) -> None:
    scene.publish()
    park(scene)
    assert scene.overdue_ids() == []

    assert scene.move("1-new") == answers.Moved()

    assert scene.overdue_ids() == ["task"]


def test_a_message_that_came_to_the_wrong_worker_counts_as_sent_for_the_first_time(
    scene: Scene,
) -> None:
    message = scene.publish()
    assert isinstance(scene.ledger.resend(scene.seen_due(), due_in_ms=FAR_MS), answers.Send)

    scene.ledger.named.divert("task", message.epoch)

    record = scene.record_of()
    assert (record.resends, record.is_unsent) == (0, True)
    assert scene.overdue_ids() == ["task"]
