"""Scenes of the ledger, played with each call recorded, whatever their answers are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import redis

from proof.traces import Entry
from tests.ledger.expected import EXPECTED
from tests.ledger.scene import Scene, open_ledger
from tests.ledger.stages import STAGES, Steps
from tests.proof import stories
from tests.support.traces import read_traces

__all__ = ["GROUPS", "play", "scenes_of"]

#: The steps of the state machine, each on every state of a task; and stories.
GROUPS = (*EXPECTED, "stories")


def scenes_of(group: str) -> list[Callable[[Scene], object]]:
    """Return what a group has the ledger do, each in a ledger of its own."""
    if group in EXPECTED:
        return [partial(_step, group, stage) for stage in EXPECTED[group]]
    return [
        story
        for story in vars(stories).values()
        if getattr(story, "__module__", "") == stories.__name__
    ]


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
