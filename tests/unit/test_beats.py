"""What a worker holds its lease for around a beat, whom it tells what, and how its pool stops."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from celery_reliable import clock
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.ledger.answers import (
    BeatOfDead,
    Forgotten,
    Registered,
    Renewed,
)
from celery_reliable.orders import NO_ORDERS
from celery_reliable.worker.heartbeat import Heartbeat
from celery_reliable.worker.shutdown import PoolStop

LEASE_SECONDS = 10.0
#: So long each answer of the ledger takes.
SECONDS = 3.0


class Scene:
    """A heartbeat whose lease holds, without a thread or a server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(clock, "now", lambda: self.now)
        self.process = WorkerProcess("one@host")
        self.process.renewed(self.now + LEASE_SECONDS)
        self.acknowledged: list[str] = []
        self.answer: Any = None
        #: What the worker thought of its lease as it read orders: until when it holds.
        self.lease_at_orders: list[float] = []
        self.beat: Any = object.__new__(Heartbeat)
        quiet = lambda *_, **__: None  # noqa: E731
        self.beat.__dict__.update(
            _process=self.process,
            _config=SimpleNamespace(lease_seconds=LEASE_SECONDS, lease_ms=10_000),
            _every_seconds=2.0,
            _warned_at=0.0,
            _no_witness="nobody looks",
            _workers=SimpleNamespace(
                heartbeat=self._answered,
                register=self._answered,
                acknowledge=lambda claim: self.acknowledged.append(claim.task_id),
            ),
            _host=SimpleNamespace(
                app=None,
                is_stalled=False,
                seen=SimpleNamespace(told=str),
                counted=dict,
                facts=dict,
                orders=SimpleNamespace(),
                claims=SimpleNamespace(stop=lambda claim: claim.task_id == "stopped"),
            ),
            connection=SimpleNamespace(
                identify=int,
                is_another=False,
                is_open=True,
                close_late=quiet,
                disconnect=quiet,
                ledger=SimpleNamespace(orders=SimpleNamespace(read=self._orders)),
            ),
        )

    def _answered(self, *_: Any, **__: Any) -> Any:
        self.now += SECONDS
        return self.answer

    def _orders(self) -> Any:
        self.lease_at_orders.append(self.process.lease_until)
        return NO_ORDERS


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_lease_counts_from_the_question(scene: Scene) -> None:
    scene.answer = Renewed(0, 0, 0, 0, ())
    scene.beat._beat()
    assert scene.process.lease_until == 100.0 + LEASE_SECONDS

    scene.answer = Registered()
    scene.beat._register()
    assert scene.process.lease_until == 100.0 + SECONDS + LEASE_SECONDS


def test_no_lease_counts_before_the_orders_are_known(scene: Scene) -> None:
    scene.process.reborn()
    scene.answer = Registered()

    scene.beat._register()

    assert scene.lease_at_orders == [0.0]


def test_what_was_taken_is_acknowledged_when_it_is_stopped(scene: Scene) -> None:
    scene.answer = Renewed(0, 0, 0, 0, ("stopped", "1 a", "runs", "1 b"))

    scene.beat._beat()

    assert scene.acknowledged == ["stopped"]


def test_who_was_declared_dead_has_no_lease(scene: Scene) -> None:
    scene.answer = BeatOfDead(0, 0, 0, 0, ())

    scene.beat._beat()

    assert not scene.process.has_lease


def test_who_was_forgotten_comes_back_as_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.answer, before = Forgotten(0, 0, 0, 0, ()), scene.process.id
    registered = []
    monkeypatch.setattr(scene.beat, "_register", lambda: registered.append(scene.process.id))

    scene.beat._beat()

    assert registered == [scene.process.id]
    assert scene.process.id != before


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_without_its_connection_no_lease_is_sure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    leases = []
    turns = iter([how == "cut", False])

    def beat() -> float:
        leases.append(scene.process.lease_until)
        raise LedgerUnavailable("no answer")

    def wait(_: float) -> bool:
        leases.append(scene.process.lease_until)
        return next(turns)

    asked: Callable[[], bool] = lambda: len(leases) > 2  # noqa: E731
    for name, stub in (("_beat", beat), ("stop_asked", asked)):
        monkeypatch.setattr(scene.beat, name, stub)
    monkeypatch.setattr(scene.beat.connection, "wait", wait, raising=False)

    scene.beat._run()

    sure = 100.0 + LEASE_SECONDS
    assert leases == [sure, 0.0 if how == "cut" else sure, 0.0]


class Pool:
    """Counts how often it was stopped."""

    n_stops = 0

    def stop(self) -> None:
        self.n_stops += 1


@pytest.mark.parametrize(
    ("name", "at_once"),
    [("prefork", 1), ("solo", 1), ("thread", 0), ("gevent", 0)],
)
def test_a_pool_that_waits_for_what_runs_stops_with_the_shutdown(name: str, at_once: int) -> None:
    pool = Pool()
    pool_stop = PoolStop(pool, name)
    pool.stop()
    assert pool.n_stops == at_once
    pool_stop.begin()
    assert pool.n_stops == 1


def test_a_pool_that_nobody_stopped_before_the_shutdown_stops_when_asked() -> None:
    pool = Pool()
    PoolStop(pool, "thread").begin()
    assert pool.n_stops == 0
    pool.stop()
    assert pool.n_stops == 1
