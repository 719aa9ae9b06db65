"""A namespace that a newer release writes in: this one does nothing there, and says so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from celery_reliable.exceptions import LedgerRefused
from celery_reliable.ledger import FORMAT, Ledger
from tests.ledger.scene import LEASE_MS, Scene

NEWER = FORMAT + 1
SAID = re.escape(f"format {NEWER}") + ".*" + re.escape(f"knows format {FORMAT}") + ".*Upgrade"


def raise_format(scene: Scene, generation: str = "7") -> None:
    """Do as the release that raises it will."""
    scene.client.hset(scene.ledger.keys.meta, mapping={"format": NEWER, "generation": generation})


def register(scene: Scene) -> object:
    return scene.workers.register("new", lease_ms=LEASE_MS, client_id=0, facts={})


def replay(scene: Scene) -> object:
    return scene.ledger.replay("dead", epoch="1-replay", message="", due_in_ms=0)


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
