"""How a worker looks at claims that nobody runs, and begins a pass when one is wanted."""

from __future__ import annotations

import os
import sys
import time
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from celery_reliable.model import Claim
from celery_reliable.worker import passes as module
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


class Heeding:
    """Notes for which moments passes were wanted when they began."""

    wanted_ms = 0
    broker: Any = None

    def __init__(self, app: Any) -> None:
        self.heeded: list[int] = []

    def run_if_due(self) -> tuple[None, float]:
        self.heeded.append(self.wanted_ms)
        self.wanted_ms = 0
        return None, SWEEP_SECONDS


def test_a_call_that_comes_between_any_two_steps_of_the_thread_is_heeded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Sweeper", Heeding)
    monkeypatch.setattr(Passes, "_tell_of_lost_pop", lambda *_: None)
    monkeypatch.setattr(Passes, "_look_at_own_claims", lambda *_: None)
    scene.host.app = None
    scene.host.health = SimpleNamespace(look=lambda broker: None)
    code = Passes._sweep.__code__

    def sweep(*, hurried_at: int) -> tuple[list[int], bool]:
        """Sweep twice, and be called at one step of the first time."""
        passes, n_steps = Passes(scene.host), 0

        def step(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal n_steps
            if frame.f_code is not code:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                n_steps += 1
                if n_steps == hurried_at:
                    passes.hurry(7)
            return step

        before = sys.gettrace()
        # Python 3.12 gives no events of steps unless some frame asked for them before.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(step)
        try:
            passes._sweep()
        finally:
            sys.settrace(before)
        passes._sweep()
        assert isinstance(passes._sweeper, Heeding)
        return passes._sweeper.heeded, n_steps >= hurried_at

    at = 1
    while (found := sweep(hurried_at=at))[1]:
        assert 7 in found[0], f"the call at step {at} was lost"
        at += 1
    assert at > 20


def test_what_is_revoked_late_or_while_the_ledger_is_away_is_told_of(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    passes, is_away = scene.passes, [False, True, False]
    monkeypatch.setattr(passes, "_sweep", lambda: SWEEP_SECONDS)
    scene.host.app = None

    def call_off(app: Any, task_ids: list[str]) -> list[str]:
        n_told = 1 if is_away.pop(0) else len(task_ids)
        told.extend(task_ids[:n_told])
        return task_ids[n_told:]

    def stop_asked(wait_seconds: float) -> bool:
        if len(is_away) == 2:
            passes.call_off(["a", "b", "c"])
        if len(is_away) == 1:
            assert told == ["a"]
            assert wait_seconds == SWEEP_SECONDS
        return len(is_away) == 1

    monkeypatch.setattr(module, "call_off", call_off)
    monkeypatch.setattr(passes, "stop_asked", stop_asked)
    passes.run()

    assert told == ["a", "b", "c"]
