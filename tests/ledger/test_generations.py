"""A server that lost something proves no more; nothing is done where a newer release writes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

import pytest

from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger import FORMAT, Ledger
from celery_reliable.ledger.answers import Cancelled, OtherGeneration, Recorded, Unrecorded
from celery_reliable.ledger.publications import Senders, sender_of
from tests.conftest import StartRedis
from tests.ledger.scene import LEASE_MS, Published, RestartableScene, Scene, open_ledger
from tests.support.promises import promise
from tests.support.redis_server import RedisServer


def lose_from(scene: Scene, *messages: Published) -> None:
    """What a server does that comes back without its last writes: these publications, the latest of
    their sender, and whatever came after.
    """
    for message in messages:
        scene.client.delete(scene.ledger.keys.record(message.task.id))
        scene.client.zrem(scene.ledger.keys.due, message.task.id)
        sender, number = sender_of(message.epoch)
        key, before = f"{scene.ledger.keys.begin}sent:{sender}", int(number) - 1
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


def test_a_replay_where_no_generation_is_known_begins_one_as_a_record_does(scene: Scene) -> None:
    """Not at 1, where every ledger of old began."""
    scene.bury(scene.claim(scene.publish()))
    before = generation(scene)
    scene.client.delete(scene.ledger.keys.meta)
    scene.ledger.generation = "1"

    answer = scene.replay(due_in_ms=0)

    assert isinstance(answer, OtherGeneration)
    assert int(answer.current) == generation(scene) >= before
    assert scene.state() == "dead"
    scene.ledger.generation = answer.current
    again = scene.replay(due_in_ms=0)
    assert isinstance(again, Recorded)


def end_in_all_ways(scene: Scene) -> list[Published]:
    messages = [scene.publish(name) for name in ("settled", "revoked", "discarded", "withdrawn")]
    settled, _, discarded, withdrawn = messages
    scene.ledger.settle(scene.claim(settled))
    scene.ledger.revoke("revoked")
    scene.bury(scene.claim(discarded))
    scene.ledger.discard("discarded")
    assert isinstance(scene.ledger.withdraw("withdrawn", withdrawn.epoch), Cancelled)
    return messages


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
    assert (child[1], parent[1]) == (1, 2)


NEWER = FORMAT + 1
SAID = re.escape(f"format {NEWER}") + ".*" + re.escape(f"knows format {FORMAT}") + ".*Upgrade"


def raise_format(scene: Scene, generation: str = "7") -> None:
    """Do as the release that raises it will."""
    scene.client.hset(scene.ledger.keys.meta, mapping={"format": NEWER, "generation": generation})


def register(scene: Scene) -> object:
    return scene.workers.register("new", lease_ms=LEASE_MS, client_id=0, facts={})


def replay(scene: Scene) -> object:
    return scene.replay("dead", due_in_ms=0)


def operate(scene: Scene) -> object:
    own = Ledger(scene.ledger.connector, scene.ledger.namespace, is_for_operators=True)
    try:
        return own.workers.leases()
    finally:
        own.close()


@pytest.mark.parametrize("act", [register, Scene.begin_pass, Scene.publish, replay, operate])
def test_nothing_is_done_in_a_newer_format(scene: Scene, act: Callable[[Scene], object]) -> None:
    scene.start_worker("me")
    scene.bury(scene.claim(scene.publish("dead")))
    act(scene) if act is not replay else None
    raise_format(scene)
    before = scene.snapshot()

    with pytest.raises(LedgerRefused, match=SAID) as caught:
        act(scene)

    assert scene.ledger.namespace in str(caught.value)
    assert scene.snapshot() == before
