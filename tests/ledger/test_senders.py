"""A sender's number tells what the server has, whatever became of it: what ended stays ended over a
restart that lost nothing, what was lost runs, and a copy that comes late changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.ledger.answers.tasks import (
    Ended,
    Held,
    InUse,
    NotCurrent,
    Recorded,
    Unknown,
    Unrecorded,
    Withdrawn,
)
from celery_reliable.ledger.publications import Senders, sender_of
from celery_reliable.model import State, TaskRef
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.task_acts import Moves
from tests.conftest import StartRedis
from tests.ledger.scene import Published, RestartableScene, Scene, open_ledger
from tests.support.promises import promise

QUEUE = "celery"
HOUR_MS = 3_600_000


def render() -> None:
    """Nobody runs it."""


def end_in_all_ways(scene: Scene) -> list[Published]:
    messages = [scene.publish(name) for name in ("settled", "revoked", "discarded", "withdrawn")]
    settled, _, discarded, withdrawn = messages
    scene.ledger.settle(scene.claim(settled))
    scene.ledger.revoke("revoked")
    scene.bury(scene.claim(discarded))
    scene.ledger.discard("discarded")
    assert isinstance(scene.ledger.withdraw("withdrawn", withdrawn.epoch), Withdrawn)
    return messages


@promise("as-durable-as-redis")
def test_what_ended_has_ended_after_a_restart_that_lost_nothing(
    restartable: RestartableScene,
) -> None:
    scene = restartable
    messages = end_in_all_ways(scene)
    restartable.restart()

    for message in messages:
        assert scene.ledger.has_ended(message.task.id, message.generation, message.epoch)
        assert isinstance(scene.ask(message), Ended)
        assert scene.ledger.find(message.task.id) is None


@pytest.mark.parametrize("how", ["moved", "replayed"])
def test_what_an_operator_published_anew_has_ended_after_such_a_restart(
    restartable: RestartableScene, how: str
) -> None:
    scene, url = restartable, restartable.server.url()
    app = Celery("shop", broker=url, backend=url, set_as_current=False)
    app.conf.reliable = {"REDIS_URL": url, "NAMESPACE": "own"}
    task = app.task(render, base=ReliableTask, name="app.work", shared=False)
    # Which generation it is says the ledger to whoever publishes.
    scene.publish("another")
    published = task.apply_async()
    ref, generation = TaskRef(published.id, task.name), scene.ledger.generation
    before = scene.record_of(published.id).epoch
    if how == "moved":
        Moves(app, scene.ledger).move([published.id], ["gpu-*"], by="me")
    else:
        scene.bury(scene.claim(Published(ref, before, generation)))
        DeadLetters(app).replay(published.id)
    anew = Published(ref, scene.record_of(published.id).epoch, generation)
    assert anew.epoch != before
    scene.ledger.settle(scene.claim(anew))

    restartable.restart()

    assert scene.ledger.has_ended(ref.id, anew.generation, anew.epoch)
    assert isinstance(scene.ask(anew), Ended)
    reliable_of(app).close()
    app.close()


def test_numbers_of_attempts_do_not_fall_over_a_restart_that_lost_nothing(
    restartable: RestartableScene,
) -> None:
    scene = restartable
    message = scene.publish()
    scene.lose(scene.claim(message))
    retry = scene.publish(claim=scene.claim(message))
    restartable.restart()
    assert scene.claim(retry).attempt == 3
    scene.ledger.settle(scene.claim(scene.publish("another")))
    restartable.restart()

    assert isinstance(scene.ask(message), Held)
    scene.ledger.settle(scene.claim(retry, token=scene.record_of().token))
    assert [type(scene.ask(late)) for late in (message, retry)] == [Ended] * 2


def test_a_publication_right_after_a_restart_proves_as_much(restartable: RestartableScene) -> None:
    """It is stamped with the old generation, as nobody has looked at the server yet."""
    scene = restartable
    before = scene.publish("before")
    restartable.restart()
    message = scene.publish("after")
    assert message.generation == before.generation
    scene.ledger.revoke("after")
    # This begins another generation.
    scene.ask(scene.foreign("x"))
    scene.ledger.passes.begin("n", interval_ms=0, ttl_ms=1, interruption_ms=1, lease_ms=1)

    assert isinstance(scene.ask(message), Ended)


class TestLoss:
    """A server that comes back with an older snapshot."""

    @pytest.fixture
    def scene(self, start_redis: StartRedis) -> Iterator[RestartableScene]:
        server = start_redis({"appendonly": "no", "save": ""})
        found = RestartableScene(open_ledger(server.url(), "own"), server)
        found.start_worker("me")
        yield found
        found.ledger.close()
        found.client.close()

    @promise("as-durable-as-redis")
    @pytest.mark.parametrize("how", ["an older snapshot", "nothing", "flushed"])
    def test_what_was_lost_runs_and_what_was_kept_has_ended(
        self, scene: RestartableScene, how: str
    ) -> None:
        kept = end_in_all_ways(scene)
        if how == "an older snapshot":
            scene.client.save()
        lost = end_in_all_ways(scene)
        lost.append(scene.publish("waits"))
        if how == "flushed":
            scene.client.flushall()
        else:
            scene.restart()
        scene.start_worker("me")

        # Its sender goes on, and what it publishes now says nothing of what was lost.
        later = [scene.publish(f"later {n}") for n in range(2)]
        assert sender_of(later[0].epoch)[0] != sender_of(lost[0].epoch)[0]
        for message in lost:
            assert not scene.ledger.has_ended(message.task.id, message.generation, message.epoch)
            assert scene.claim(message).attempt == 1
            scene.ledger.revoke(message.task.id)
            scene.client.delete(scene.ledger.keys.record(message.task.id))
        for message in kept:
            has_ended = scene.ledger.has_ended(message.task.id, message.generation, message.epoch)
            assert has_ended is (how == "an older snapshot")
        assert [scene.claim(message).attempt for message in later] == [1, 1]

    def test_the_same_snapshot_twice(self, scene: RestartableScene) -> None:
        scene.publish("kept")
        scene.client.save()
        lost = []
        for n in range(3):
            lost += [scene.publish(f"lost {n} {m}") for m in range(3)]
            scene.restart()

        assert [scene.claim(message).attempt for message in lost] == [1] * len(lost)


@pytest.mark.parametrize("queue", ["", QUEUE])
def test_a_copy_that_comes_late_changes_nothing(scene: Scene, queue: str) -> None:
    """A connection was given up, the call repeated over another; then the first arrives."""
    ledger, task = scene.ledger, TaskRef("task", "app.work")
    scene.client.delete(QUEUE)
    epoch = ledger.senders.new_epoch(0)
    assert isinstance(scene.record(task, epoch, queue=queue), Recorded)
    ledger.senders.answered(epoch)
    ledger.settle(scene.claim(Published(task, epoch, ledger.generation)))
    once = scene.snapshot()
    # Before and after its sender has gone on.
    assert isinstance(scene.record(task, epoch, queue=queue), Recorded)
    assert scene.snapshot() == once
    following = scene.publish("following")
    assert sender_of(following.epoch)[0] == sender_of(epoch)[0]
    once = scene.snapshot()
    assert isinstance(scene.record(task, epoch, queue=queue), Unknown)
    assert scene.snapshot() == once


def test_a_late_copy_of_what_was_refused_changes_nothing(scene: Scene) -> None:
    """Its caller was told that the id lives, or that its attempt is over."""
    ledger, task = scene.ledger, TaskRef("task", "app.work")
    message = scene.publish()
    claim = scene.claim(message)
    exists, fenced = ledger.senders.new_epoch(0), ledger.senders.new_epoch(1)
    answers = {
        exists: scene.record(task, exists),
        fenced: scene.record(TaskRef("other", "app.work"), fenced, claim=claim),
    }
    assert [type(a) for a in answers.values()] == [InUse, NotCurrent]
    ledger.settle(claim)
    once = scene.snapshot()

    assert scene.record(task, exists) == answers[exists]
    assert scene.record(TaskRef("other", "app.work"), fenced, claim=claim) == answers[fenced]
    assert scene.snapshot() == once


def test_two_copies_of_one_process_take_nothing_from_each_other(
    scene: Scene, ledger_url: str
) -> None:
    """A machine was cloned, with all that its process remembers."""
    first = scene.publish("first")
    clone = Scene(open_ledger(ledger_url, scene.ledger.namespace), scene.client)
    clone.ledger.generation = scene.ledger.generation
    clone.ledger.senders.answered(first.epoch)

    published = [one.publish(f"{n} {name}") for n in range(3) for name, one in
                 (("original", scene), ("clone", clone))]  # fmt: skip

    assert all(scene.ledger.find(message.task.id) for message in published)
    clone.ledger.close()


@promise("as-durable-as-redis")
def test_a_sender_is_remembered_for_an_hour_for_each_publication_and_a_day_at_most(
    scene: Scene,
) -> None:
    left_ms = []
    for _ in range(30):
        message = scene.publish("task")
        key = scene.ledger.keys.sent(sender_of(message.epoch)[0])
        left_ms.append(scene.client.pttl(key))
        scene.ledger.revoke("task")

    assert [round(ms / HOUR_MS, 1) for ms in left_ms] == [min(n, 24) for n in range(1, 31)]


def test_one_that_was_forgotten_begins_anew(scene: Scene) -> None:
    message = scene.publish("first")
    scene.client.delete(scene.ledger.keys.sent(sender_of(message.epoch)[0]))
    refused = scene.ledger.senders.new_epoch(0)
    task = TaskRef("task", "app.work")

    assert isinstance(scene.record(task, refused), Unknown)
    assert scene.ledger.find("task") is None
    assert sender_of(scene.publish("task").epoch)[0] != sender_of(message.epoch)[0]


def test_a_message_of_a_generation_of_its_own_without_a_sender_is_judged_by_that(
    restartable: RestartableScene,
) -> None:
    """As the publishers of before this wrote them."""
    scene = restartable
    task, epoch = TaskRef("task", "app.work"), "0-12345678"
    assert isinstance(scene.record(task, epoch, state=State.QUEUED), Recorded)
    message = Published(task, epoch, scene.ledger.generation)
    scene.ledger.revoke("task")
    assert isinstance(scene.ask(message), Ended)
    restartable.restart()

    assert isinstance(scene.ask(message), Unrecorded)


def test_a_fork_has_senders_of_its_own() -> None:
    senders = Senders()
    senders.answered(senders.new_epoch(0))
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, senders.new_epoch(0).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child, parent = sender_of(os.read(read, 200).decode()), sender_of(senders.new_epoch(0))
    os.close(read)
    os.close(write)

    assert child[0] != parent[0]
    assert (child[1], parent[1]) == ("1", "2")
