"""The server's clock is ahead for a moment between two passes: none of them sees a step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from celery_reliable.ledger.answers.workers import NotDue, SetBack
from celery_reliable.model import State
from tests.ledger.scene import LEASE_MS, RestartableScene
from tests.support.faketime import SteppingServer, faketime_library
from tests.support.promises import promise

HOUR = 3600
SWEEP_MS = 2000
LIBRARY = faketime_library()

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="needs libfaketime (Debian: faketime)")


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[SteppingServer]:
    with SteppingServer(tmp_path, str(LIBRARY)) as server:
        yield server


def sweep(scene: RestartableScene) -> Any:
    """Begin and end a pass, and set back what it says; return what it said at the beginning."""
    passes = scene.ledger.passes
    begun = passes.begin(
        "mine", interval_ms=0, ttl_ms=SWEEP_MS, interruption_ms=3 * SWEEP_MS, lease_ms=LEASE_MS
    )
    while isinstance(passes.set_back(100), SetBack):
        pass
    passes.end("mine", {})
    return begun


def due_in_ms(scene: RestartableScene, task_id: str) -> int:
    due = next(due for due in scene.ledger.all_due(start=0, limit=9) if due.task_id == task_id)
    return int(due.due_ms) - scene.workers.time_ms()


@promise("clock-of-redis", "waiting-is-safe")
@pytest.mark.parametrize("seen_by", ["the publication", "a beat before it", "a beat after it"])
def test_what_is_put_off_meanwhile_is_not_late(
    restartable: RestartableScene, redis_server: SteppingServer, seen_by: str
) -> None:
    scene = restartable
    scene.publish("before", state=State.PARKED, due_in_ms=2 * HOUR * 1000)
    sweep(scene)
    redis_server.set_off(HOUR)
    if seen_by == "a beat before it":
        scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0)
    state = State.PARKED if seen_by == "the publication" else State.QUEUED
    scene.publish("task", state=state, due_in_ms=60_000)
    if seen_by == "a beat after it":
        scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0)
    redis_server.set_off(0)
    assert due_in_ms(scene, "task") > HOUR * 1000

    begun = sweep(scene)

    assert begun.behind_ms == pytest.approx(HOUR * 1000, abs=10_000)
    # It is an interruption: the leases of before are not believed.
    assert begun.grace_ms > scene.workers.time_ms()
    assert due_in_ms(scene, "task") == pytest.approx(60_000, abs=10_000)
    # It is looked at too early, which does no harm.
    assert due_in_ms(scene, "before") == pytest.approx(HOUR * 1000, abs=10_000)
    assert sweep(scene).behind_ms is None


@promise("clock-of-redis")
def test_a_publication_or_beat_that_goes_on_is_no_step(
    restartable: RestartableScene, redis_server: SteppingServer
) -> None:
    scene = restartable
    sweep(scene)
    scene.publish("task", state=State.PARKED, due_in_ms=60_000)
    scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0)

    assert sweep(scene).behind_ms is None
    # Another host's clock, after a failover, is a little behind.
    redis_server.set_off(-1)
    assert isinstance(sweep(scene), NotDue)
    assert due_in_ms(scene, "task") == pytest.approx(61_000, abs=10_000)


@promise("clock-of-redis")
def test_a_clock_that_is_behind_for_a_moment_hides_no_later_time(
    restartable: RestartableScene, redis_server: SteppingServer
) -> None:
    """The latest time that was seen counts, not the last one."""
    scene = restartable
    sweep(scene)
    redis_server.set_off(HOUR)
    scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0)
    scene.publish("task", state=State.PARKED, due_in_ms=60_000)
    redis_server.set_off(0)
    scene.publish("next", state=State.PARKED, due_in_ms=60_000)
    scene.workers.heartbeat("me", lease_ms=LEASE_MS, client_id=0)

    assert sweep(scene).behind_ms == pytest.approx(HOUR * 1000, abs=10_000)
    assert due_in_ms(scene, "task") == pytest.approx(60_000, abs=10_000)
