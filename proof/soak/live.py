"""One world from its first fault to its rest, and what the oracle says of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from celery_reliable.app import reliable_of
from celery_reliable.exceptions import ReliableError
from proof.soak.app import create_soak_app
from proof.soak.deaths import Death
from proof.soak.faults import Happened, befall
from proof.soak.oracle import Anomaly, judge
from proof.soak.patience import patiently
from proof.soak.plan import World
from proof.soak.publisher import replay
from proof.soak.world import PUBLISHER, SoakWorld

__all__ = ["STRAYED", "Lived", "live"]

#: A claim that was not its attempt's, for however short.
STRAYED = "stray claim"

#: So long all work before the first fault.
_WARM_SECONDS = 1.0
#: A retry, or a countdown, counts by the clock of who asks for it: it may be an hour away.
_LATER_SECONDS = 2 * 3600


@dataclass(frozen=True)
class Lived:
    """What came of a world."""

    world: World
    problems: list[str]
    kinds: list[str] = field(default_factory=list)
    allowed: list[tuple[str, Anomaly]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    happened: list[Happened] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)


def live(world: World, folder: Path, rest_seconds: float) -> Lived:
    """Let all of it happen, wait until the world is at rest, and judge it.

    Raises AssertionError when the world itself does not work, as when a server does not start, and
    proof.checker.NotALogError when nothing was published.
    """
    running = SoakWorld(folder, world.set_up, world.name)
    try:
        running.start_publishing()
        running.let_pass(_WARM_SECONDS)
        happened = []
        for step in world.steps:
            running.let_pass(step.after_seconds)
            happened.append(befall(running, step))
            print(f"    {time.strftime('%H:%M:%S')} {step}: {_short(happened[-1])}", flush=True)
        running.stop_publishing()
        running.begin_anew()
        unrest = _rest(running, rest_seconds, is_over=False)
        put_off = patiently(running.put_off)
        if put_off and not unrest:
            happened = [_with(one, put_off) for one in happened]
            running.begin_anew(later_seconds=_LATER_SECONDS)
            unrest = _rest(running, rest_seconds, is_over=True)
        rows = patiently(running.rows)
        left = patiently(running.left)
        found = judge(rows, happened, running.deaths.found, left)
        # What the table allows may keep it from resting.
        has_cause = bool(found.allowed or found.faults)
        problems = [*map(str, found.faults), *([unrest] if unrest and not has_cause else [])]
        strayed = running.servers.strayed()
        problems += [f"{STRAYED}: {one}" for one in strayed]
        if left:
            (folder / "left.txt").write_text(patiently(running.told_of_left))
        return Lived(
            world,
            problems,
            [*(fault.kind for fault in found.faults), *(STRAYED for _ in strayed)],
            found.allowed,
            found.counts,
            running.refused(),
            happened,
            running.deaths.found,
            rows,
        )
    finally:
        running.close()


def _rest(running: SoakWorld, seconds: float, *, is_over: bool) -> str:
    app = create_soak_app(running.settings(PUBLISHER))

    def again() -> None:
        try:
            replay(app, running.log)
        except ReliableError as error:
            print(f"    replay: {type(error).__name__}: {error}", flush=True)

    try:
        return running.rest(seconds, again, may_be_put_off=not is_over)
    finally:
        reliable_of(app).close()
        app.close()
        app.effects.client.close()


def _with(one: Happened, put_off: set[str]) -> Happened:
    if one.fault != "worker-clock":
        return one
    return replace(one, put_off=frozenset(put_off))


def _short(happened: Happened) -> str:
    told = [f"{happened.until - happened.began:.1f} s"]
    if happened.lost is not None:
        told.append(f"{happened.lost[1] - happened.lost[0]:.2f} s lost")
    return ", ".join(told)
