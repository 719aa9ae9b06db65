"""A missing record proves that its task ended, as long as the server lost none."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.answers.tasks import (
    Ended,
    OtherGeneration,
    Replayed,
    Settled,
    Unrecorded,
)
from celery_reliable.ledger.publications import sender_of
from celery_reliable.model import State
from tests.ledger.scene import LEASE_MS, Published, RestartableScene, Scene
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


def lose_from(scene: Scene, *messages: Published) -> None:
    """What a server does that comes back without its last writes: these publications, the latest of
    their sender, and whatever came after.
    """
    for message in messages:
        scene.client.delete(scene.ledger.keys.record(message.task.id))
        scene.client.zrem(scene.ledger.keys.due, message.task.id)
        sender, number = sender_of(message.epoch)
        key, before = scene.ledger.keys.sent(sender), int(number) - 1
        had = (scene.client.get(key) or b"-0").rpartition(b"-")[2]
        if int(had) > before:
            scene.client.delete(key)
            if before:
                scene.client.set(key, f"0-00000000-{sender}-{before}")


def restart(server: RedisServer) -> None:
    server.stop()
    server.start()


def generation(scene: Scene) -> int:
    return int(scene.ledger.passes.meta()["generation"])


def sweep(scene: Scene) -> None:
    scene.ledger.passes.begin(
        "n", interval_ms=0, ttl_ms=LEASE_MS, interruption_ms=LEASE_MS, lease_ms=LEASE_MS
    )
    scene.ledger.passes.end("n", {})


def test_a_late_copy_of_a_task_that_ended_is_dropped_however_it_ended(scene: Scene) -> None:
    settled, cancelled, discarded = (scene.publish(name) for name in ("a", "b", "c"))
    scene.ledger.settle(scene.claim(settled))
    scene.ledger.revoke("b")
    scene.bury(scene.claim(discarded))
    scene.ledger.discard("c")
    before = scene.snapshot()

    for message in (settled, cancelled, discarded):
        assert isinstance(scene.ask(message, content="as delivered"), Ended)
    assert scene.snapshot() == before


def test_a_publisher_learns_the_generation_from_a_refusal(scene: Scene) -> None:
    first = scene.publish("first")
    before = scene.snapshot()
    scene.ledger.generation = "7"

    task = scene.foreign("second").task
    answer = scene.ledger.record(
        task, epoch="0-1", state=State.QUEUED, due_in_ms=0, message="", claim=None
    )

    assert isinstance(answer, OtherGeneration)
    assert answer.current == first.generation
    assert scene.snapshot() == before


@pytest.mark.parametrize("is_foreign", [True, False])
def test_a_message_from_outside_this_generation_runs_and_gets_a_record(
    scene: Scene, is_foreign: bool
) -> None:
    current = scene.publish("current")
    older = Published(scene.foreign().task, "0-1", str(int(current.generation) - 1))
    message = scene.foreign() if is_foreign else older

    assert isinstance(scene.ask(message), Unrecorded)
    assert scene.ledger.find("task") is None
    claim = scene.claim(message)

    record = scene.record_of()
    assert (record.state, record.attempt, record.message) == (State.RUNNING, 1, "as delivered")
    assert generation(scene) == int(current.generation)
    # From here on it is as protected as any other.
    scene.lose(claim)
    assert scene.claim(message).attempt == 2


def test_a_record_that_a_restart_lost_is_made_again(restartable: RestartableScene) -> None:
    scene = restartable
    kept, lost, other = (scene.publish(name) for name in ("kept", "lost", "other"))
    restart(restartable.server)
    lose_from(scene, lost, other)

    # Whoever comes first counts up, without having the message at hand; nobody counts twice.
    assert isinstance(scene.ask(lost), Unrecorded)
    counted = generation(scene)
    assert counted > int(kept.generation)
    assert scene.claim(lost).attempt == 1
    assert scene.claim(other).attempt == 1
    assert scene.claim(kept).attempt == 1
    assert generation(scene) == counted


def test_a_restart_that_lost_nothing_changes_nothing(restartable: RestartableScene) -> None:
    scene = restartable
    queued, running = scene.publish("queued"), scene.publish("running")
    claim = scene.claim(running)
    restart(restartable.server)

    assert scene.claim(queued).attempt == 1
    assert isinstance(scene.ledger.settle(claim), Settled)


def test_a_pass_counts_a_restart_once(restartable: RestartableScene) -> None:
    scene = restartable
    message = scene.publish()
    sweep(scene)
    assert generation(scene) == int(message.generation)

    restart(restartable.server)
    sweep(scene)
    counted = generation(scene)
    sweep(scene)

    assert generation(scene) == counted > int(message.generation)
    assert scene.publish("later").generation == str(counted)


@pytest.mark.parametrize("first", ["pass", "claim"])
def test_a_server_that_comes_back_with_the_same_old_data_twice_drops_nothing(
    restartable: RestartableScene, first: str
) -> None:
    """From a snapshot, or as a replica that lags: it does not know how often it was counted up."""
    scene = restartable
    early = [scene.publish(name) for name in ("early", "other")]
    meta = scene.client.hgetall(scene.ledger.keys.meta)
    lost = []
    for n, older in enumerate(early):
        restart(restartable.server)
        scene.client.delete(scene.ledger.keys.meta)
        scene.client.hset(scene.ledger.keys.meta, mapping=meta)
        lose_from(scene, *early[n:], *lost)
        if first == "pass":
            sweep(scene)
        else:
            scene.ask(older)
        # The records of those that were published meanwhile are gone as well.
        assert [type(scene.ask(message)) for message in lost] == [Unrecorded] * n
        lost.append(scene.publish(f"late {n}"))

    assert len({message.generation for message in (*early, *lost)}) == 3


def test_where_everything_was_lost_older_messages_do_not_pass_for_ended_ones(scene: Scene) -> None:
    message = scene.publish()

    for first in ("record", "pass", "claim"):
        scene.client.flushdb()
        # Generations are made of the time, and everything is not lost within a millisecond.
        wait_for(lambda: scene.workers.time_ms() > int(message.generation), 5, "the clock")
        scene.start_worker("me")
        if first == "record":
            assert scene.publish("later").generation != message.generation
        elif first == "pass":
            sweep(scene)
        assert scene.claim(message).attempt == 1
        assert generation(scene) > int(message.generation)


FUTURE = str(10**15 - 1)
DAY_MS = 86_400_000


def test_what_a_message_tells_of_a_far_future_is_not_counted_on_from(
    restartable: RestartableScene,
) -> None:
    scene = restartable
    scene.publish("before")
    restart(restartable.server)
    message = Published(scene.foreign().task, "0-x", FUTURE)

    # It proves nothing, and runs; and what is published from now on is known by its stamp.
    assert isinstance(scene.ask(message), Unrecorded)
    assert scene.claim(message).attempt == 1
    later = scene.publish("later")
    assert int(later.generation) <= scene.workers.time_ms()
    assert scene.claim(later).attempt == 1


@pytest.mark.parametrize("who", ["record", "replay", "pass", "claim"])
def test_a_generation_of_a_far_future_heals(scene: Scene, who: str) -> None:
    scene.bury(scene.claim(scene.publish("dead")))
    scene.publish("queued")
    sweep(scene)
    scene.client.hset(scene.ledger.keys.meta, "generation", FUTURE)
    scene.ledger.generation = FUTURE

    if who == "record":
        scene.publish("later")
    elif who == "replay":
        answer = scene.ledger.replay("dead", epoch="1-replay", message="", due_in_ms=0)
        assert isinstance(answer, OtherGeneration)
    elif who == "pass":
        sweep(scene)
    else:
        older = str(scene.workers.time_ms() - 1)
        assert isinstance(scene.ask(Published(scene.foreign().task, "0-x", older)), Unrecorded)

    assert generation(scene) <= scene.workers.time_ms()


def test_a_generation_that_a_stepped_clock_left_is_counted_on_from(
    restartable: RestartableScene,
) -> None:
    scene = restartable
    restart(restartable.server)
    ahead = str(scene.workers.time_ms() + DAY_MS // 24)

    assert isinstance(scene.ask(Published(scene.foreign().task, "0-x", ahead)), Unrecorded)

    assert generation(scene) > int(ahead)


def test_a_replay_where_no_generation_is_known_begins_one_as_a_record_does(scene: Scene) -> None:
    """Not at 1, where every ledger of old began."""
    scene.bury(scene.claim(scene.publish()))
    before = generation(scene)
    scene.client.delete(scene.ledger.keys.meta)
    scene.ledger.generation = "1"

    answer = scene.ledger.replay("task", epoch="1-replay", message="", due_in_ms=0)

    assert isinstance(answer, OtherGeneration)
    assert int(answer.current) == generation(scene) >= before
    assert scene.state() == "dead"
    scene.ledger.generation = answer.current
    again = scene.ledger.replay("task", epoch="1-replay", message="", due_in_ms=0)
    assert isinstance(again, Replayed)


def test_an_end_is_proved_by_absence_within_the_generation_alone(
    restartable: RestartableScene,
) -> None:
    ledger = restartable.ledger
    message = restartable.publish()
    assert not ledger.has_ended("task", message.generation)
    ledger.settle(restartable.claim(message))
    assert ledger.has_ended("task", message.generation)
    assert not ledger.has_ended("task", str(int(message.generation) - 1))
    restart(restartable.server)
    # Whatever was lost, it was lost between two generations.
    assert not ledger.has_ended("task", message.generation)
