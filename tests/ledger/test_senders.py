"""A sender's number tells what the server has, whatever became of it: what ended stays ended over a
restart that lost nothing, what was lost runs, and a copy that comes late changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.ledger.answers.tasks import (
    Ended,
    Withdrawn,
)
from celery_reliable.ledger.senders import sender_of
from celery_reliable.model import TaskRef
from celery_reliable.operations.dead_letters import DeadLetters
from celery_reliable.operations.moves import Moves
from tests.conftest import StartRedis
from tests.ledger.scene import Published, RestartableScene, Scene, open_ledger
from tests.support.promises import promise


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
