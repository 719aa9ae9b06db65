"""Scenes of the ledger, played with each call recorded, whatever their answers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import redis

from proof.traces import Entry
from tests.ledger.scene import LOOK_MS, Scene, open_ledger
from tests.ledger.stages import STAGES, Steps, take_place
from tests.support.traces import read_traces

__all__ = ["play", "scenes_of"]


def scenes_of(group: str) -> list[Callable[[Scene], object]]:
    """Return what a group has the ledger do, each in a ledger of its own: a step of the state
    machine on every state of a task; or stories.
    """
    if group == "stories":
        return [*STORIES]
    return [partial(_step, group, stage) for stage in STAGES]


def _step(step: str, stage: str, scene: Scene) -> object:
    return Steps(scene, STAGES[stage](scene)).take(step)


def play(
    scenes: Sequence[Callable[[Scene], object]], url: str, client: redis.Redis
) -> Iterator[list[Entry]]:
    """Play each, and return its trace.  What the test itself says of it does not count."""
    for number, scene in enumerate(scenes):
        client.flushdb()
        ledger = open_ledger(url, namespace=f"proof{number}")
        try:
            found = Scene(ledger, client)
            for name in ("me", "other"):
                found.start_worker(name)
            scene(found)
        except Exception:
            # The trace has to tell it.
            pass
        finally:
            ledger.close()
        yield from read_traces(client).values()


# Stories of what no step of the state machine shows, for changes of their traces.


def a_replay_is_repeated(scene: Scene) -> None:
    scene.bury(scene.claim(scene.publish()))
    for _ in range(2):
        scene.ledger.replay("task", epoch="1-replay", message="again", due_in_ms=LOOK_MS)


def an_object_is_free_when_its_task_has_ended(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.locks.take("object", claim)
    scene.ledger.settle(claim)


def two_sweepers_have_seen_the_same(scene: Scene) -> None:
    scene.publish()
    seen = scene.seen_due()
    for _ in range(2):
        scene.ledger.resend(seen, due_in_ms=2 * LOOK_MS)


def an_object_is_anothers(scene: Scene) -> None:
    holder, other = (scene.claim(scene.publish(name)) for name in ("holder", "other"))
    scene.locks.take("object", holder)
    scene.locks.take("object", other)
    scene.locks.free("object", other)


def an_object_is_a_later_attempts(scene: Scene) -> None:
    message = scene.publish()
    first = scene.claim(message)
    scene.lose(first)
    scene.locks.take("object", scene.claim(message))
    scene.locks.take("object", first)


def a_place_is_taken_and_waited_for(scene: Scene) -> None:
    holder, first, last = (scene.claim(scene.publish(name)) for name in ("holder", "first", "last"))
    take_place(scene, holder)
    take_place(scene, first, stands=True)
    take_place(scene, last, stands=True)
    scene.ledger.settle(holder)
    # It is not its turn.
    take_place(scene, scene.claim(scene.publish("later")), stands=True)


def what_was_taken_has_been_stopped(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.take(claim)
    scene.workers.acknowledge(claim)


def a_worker_dies_that_ran_one_task(scene: Scene) -> None:
    scene.claim(scene.publish())
    scene.workers.deregister("me", in_unacked=0)
    scene.kill_worker("me")


STORIES: tuple[Callable[[Scene], object], ...] = (
    a_replay_is_repeated,
    an_object_is_free_when_its_task_has_ended,
    two_sweepers_have_seen_the_same,
    an_object_is_anothers,
    an_object_is_a_later_attempts,
    a_place_is_taken_and_waited_for,
    what_was_taken_has_been_stopped,
    a_worker_dies_that_ran_one_task,
)
