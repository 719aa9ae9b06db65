"""Leases: taken, renewed, lapsed, and the two ways in which a worker is declared dead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_reliable.leases import WorkerLease
from celery_reliable.ledger import answers, taken_from
from celery_reliable.ledger.answers import Answer
from tests.ledger.scene import LEASE_MS, Scene, open_ledger

CLIENT_ID = 4711


def beat(scene: Scene, worker: str = "me", client_id: int = CLIENT_ID) -> type[Answer]:
    return type(scene.beat(worker, client_id=client_id))


def in_state(scene: Scene, state: str) -> WorkerLease:
    """Bring the worker "it" into a state; return its lease as a sweeper saw it last."""
    unseen = WorkerLease("it", False, 0, renewals="0", client_id=str(CLIENT_ID))
    if state == "unknown":
        return unseen
    scene.start_worker("it", lease_ms=0 if state == "lapsed" else LEASE_MS, client_id=CLIENT_ID)
    if state == "suspected":
        assert scene.declare("connection", scene.lease("it")) is answers.Suspected
    if state in ("dead", "forgotten"):
        scene.kill_worker("it")
    if state == "forgotten":
        assert scene.workers.deregister("it", in_unacked=0)
        return unseen
    return scene.lease("it")


CALLS: dict[str, Callable[[Scene, WorkerLease], object]] = {
    "register": lambda scene, _: scene.workers.register(
        "it", lease_ms=LEASE_MS, client_id=CLIENT_ID, facts={}
    ),
    "heartbeat": lambda scene, _: beat(scene, "it"),
    "lapse": lambda scene, lease: scene.declare("lapsed", lease),
    "witness": lambda scene, lease: scene.declare("connection", lease),
    "deregister": lambda scene, _: scene.workers.deregister("it", in_unacked=0),
}


@pytest.mark.parametrize("state", ["unknown", "alive", "lapsed", "suspected", "dead", "forgotten"])
@pytest.mark.parametrize("what", CALLS)
def test_each_call_in_each_state_of_a_worker(scene: Scene, what: str, state: str) -> None:
    """What it answers and writes the model judges."""
    lease = in_state(scene, state)

    CALLS[what](scene, lease)

    assert scene.index_faults() == []


def test_a_forgotten_worker_still_hears_what_was_taken(scene: Scene) -> None:
    claim = scene.claim(scene.publish())
    scene.kill_worker("me")
    scene.lose(claim, is_taken=True)
    assert not scene.lease("me").is_thawed
    assert beat(scene) is answers.BeatOfDead
    # What must not be moved is its own to go on with.
    assert scene.lease("me").is_thawed
    assert scene.workers.deregister("me", in_unacked=0)

    told = scene.beat()
    assert (type(told), taken_from(told, "me")) == (answers.Forgotten, [claim])
    # Nobody removes it if that process is never heard of again.
    assert scene.client.pttl(scene.ledger.keys.begin + "taken:me") > 0

    assert isinstance(scene.workers.acknowledge(claim), answers.Acknowledged)
    assert scene.beat().ids_and_claims == ()


@pytest.mark.parametrize("what", ["heartbeat", "registration"])
def test_what_a_worker_said_before_changes_nothing_when_it_comes_late(
    scene: Scene, ledger_url: str, what: str
) -> None:
    """It would name a connection that is closed: a witness would take the worker for dead."""
    scene.start_worker("it", client_id=CLIENT_ID)
    for _ in range(3):
        assert beat(scene, "it") is answers.Renewed
    lease, before = scene.lease("it"), scene.snapshot()
    # What its process said first of itself, over a connection that was given up.
    workers = open_ledger(ledger_url, scene.ledger.namespace).workers

    if what == "heartbeat":
        workers.heartbeat("it", lease_ms=10 * LEASE_MS, client_id=CLIENT_ID - 1)
    else:
        workers.register("it", lease_ms=10 * LEASE_MS, client_id=CLIENT_ID - 1, facts={"old": 1})

    assert scene.snapshot() == before
    assert scene.lease("it") == lease
    assert beat(scene, "it") is answers.Renewed
    # Nor does it bring a dead one back.
    scene.kill_worker("it")
    before = scene.snapshot()
    assert isinstance(workers.heartbeat("it", lease_ms=1, client_id=1), answers.BeatOfDead)
    assert scene.snapshot() == before
