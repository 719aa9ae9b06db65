"""A ledger whose calls are recorded, whatever the options of this run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from proof.traces import recording
from tests.ledger.scene import Scene, open_ledger
from tests.support.acl import granted


@pytest.fixture
def recorded() -> Iterator[None]:
    """All that this test asks of a ledger is recorded."""
    was_recording = recording.is_recording()
    recording.start()
    yield
    recording.stop()
    if was_recording:
        recording.start()


@pytest.fixture
def new_scene(recorded: None, shared_redis: redis.Redis) -> Iterator[Callable[[], Scene]]:
    """Make a scene in a namespace of its own; all are recorded."""
    url = granted(shared_redis, namespace="*")
    scenes: list[Scene] = []

    def make() -> Scene:
        ledger = open_ledger(url, namespace=f"proof{len(scenes)}")
        scenes.append(Scene(ledger, shared_redis))
        for name in ("me", "other"):
            scenes[-1].start_worker(name)
        return scenes[-1]

    yield make
    for scene in scenes:
        scene.ledger.close()
