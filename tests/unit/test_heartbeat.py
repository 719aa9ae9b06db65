"""How a worker looks at claims that nobody runs."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from celery_reliable.model import Claim
from celery_reliable.worker.passes import Passes

SWEEP_SECONDS = 2.0


class Scene:
    """A worker with one claim that nobody runs, and what becomes of that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.claim = Claim("id", 1, "one/1.0", "token")
        self.lost: list[Claim] = []
        self.released: list[Claim] = []
        self.host: Any = SimpleNamespace(
            process=SimpleNamespace(id="one/1.0"),
            reliable=SimpleNamespace(config=SimpleNamespace(sweep_seconds=SWEEP_SECONDS)),
            is_leaving=False,
            claims=SimpleNamespace(
                runs=lambda claim: False,
                has_given_up=lambda claim: False,
            ),
        )
        workers = SimpleNamespace(claims=lambda worker: {"id": (self.claim, os.getpid())})
        self.sweeper: Any = SimpleNamespace(
            ledger=SimpleNamespace(
                workers=workers, release=lambda claim, due_in_ms: self.released.append(claim)
            ),
            losses=SimpleNamespace(lose_orphan=self.lost.append),
        )
        self.passes = Passes(self.host)

    def look(self, seconds_later: float) -> None:
        self.now += seconds_later
        self.passes._look_at_own_claims(self.sweeper)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_it_is_lost_when_it_is_seen_again_after_a_while(scene: Scene) -> None:
    scene.look(0)
    scene.look(0.05)
    assert not scene.lost
    scene.look(SWEEP_SECONDS)
    assert scene.lost == [scene.claim]


def test_one_that_runs_in_between_is_new_again(scene: Scene) -> None:
    scene.look(0)
    scene.host.claims.runs = lambda claim: True
    scene.look(SWEEP_SECONDS)
    scene.host.claims.runs = lambda claim: False
    scene.look(SWEEP_SECONDS)
    assert not scene.lost


def test_a_worker_that_leaves_releases_what_it_stops_by_itself(scene: Scene) -> None:
    scene.look(0)
    scene.host.is_leaving = True
    scene.look(SWEEP_SECONDS)
    assert (scene.lost, scene.released) == ([], [])


def test_one_by_which_nobody_began_is_no_loss(scene: Scene) -> None:
    scene.host.claims.has_given_up = lambda claim: True
    scene.look(0)
    scene.look(SWEEP_SECONDS)
    assert (scene.lost, scene.released) == ([], [scene.claim])
