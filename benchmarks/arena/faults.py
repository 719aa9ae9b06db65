"""The faults.  Each is done to workers `a` and `b` of one system, and ends within its bounds.

A task that is *struck* is one that the fault took from its worker: it ran there, or nobody had
begun it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from benchmarks.arena.stage import Run, Stage, Unit

__all__ = ["FAULTS", "Fault", "Outcome"]

#: What a system is given to stop a run that it has taken away.
_NOTICE_SECONDS = 5.0
#: After all have ended: what comes now is a second run.
_QUIET_SECONDS = 3.0
_GRACE_SECONDS = 4.0
_ETA_SECONDS = 8.0
_POISON_SECONDS = 30.0


@dataclass(frozen=True)
class Outcome:
    """What a fault came to."""

    tasks: int
    #: Not back, or not ended, within the bound.  Some of them may come back later.
    not_back: int
    #: Ran to the end more than once.
    ended_twice: int
    #: Ran beside themselves.
    at_once: int
    #: From the fault to the last beginning of a struck task; None when one did not come back.
    seconds: float | None = None
    #: Beginnings in all, of the task that matters.
    runs: int | None = None
    #: Whether what was to be redelivered was, so that there was something to see.
    was_redelivered: bool | None = None
    #: How long the runs that were frozen still went on after they were thawed.
    went_on_seconds: float | None = None


@dataclass(frozen=True)
class Fault:
    """One fault: what it is called in the table, and what is done."""

    name: str
    title: str
    play: Callable[[Stage], Outcome]


def _child(stage: Stage) -> Outcome:
    keys = ("one", "two")
    _running(stage, keys)
    stage.worker("b")
    killed_at = time.monotonic()
    os.kill(stage.runs("one")[0].pid, signal.SIGKILL)
    return _after(stage, keys, ("one",), killed_at)


def _worker(stage: Stage) -> Outcome:
    keys = tuple(f"key-{number}" for number in range(6))
    a = _running(stage, keys, running=2)
    stage.worker("b")
    mine = a.members()
    killed_at = time.monotonic()
    a.signal_all(signal.SIGKILL)
    struck = [key for key in keys if not stage.runs(key) or stage.runs(key)[0].pid in mine]
    stage.open_gate()
    return _after(stage, keys, struck, killed_at)


def _zombie(stage: Stage) -> Outcome:
    keys = ("one", "two")
    a = _running(stage, keys)
    stage.worker("b")
    stopped_at = time.monotonic()
    a.signal_all(signal.SIGSTOP)
    is_back = stage.wait(lambda: all(len(stage.runs(key)) > 1 for key in keys))
    frozen = {run.run_id for key in keys for run in stage.runs(key)[:1]}
    thawed_at = time.monotonic()
    a.signal_all(signal.SIGCONT)
    if is_back:
        time.sleep(_NOTICE_SECONDS)
    outcome = _after(stage, keys, keys if is_back else (), stopped_at)
    last = [run.last_seen_at for key in keys for run in stage.runs(key) if run.run_id in frozen]
    went_on = max(0.0, max(last) - thawed_at) if is_back else None
    return replace(outcome, was_redelivered=is_back, went_on_seconds=went_on)


def _restart(stage: Stage) -> Outcome:
    keys = ("one", "two", "three", "four", "later")
    _running(stage, keys[:4], running=2)
    stage.worker("b")
    stage.publish("later", delay=_ETA_SECONDS)
    stage.server.stop()
    stage.server.start()
    stage.open_gate()
    return _after(stage, keys, (), time.monotonic())


def _poison(stage: Stage) -> Outcome:
    stage.worker("a")
    stage.worker("b")
    stage.open_gate()
    began_at = time.monotonic()
    stage.publish("poison", mode="poison")
    stage.publish("innocent-1", "innocent-2")
    time.sleep(max(0.0, _POISON_SECONDS - (time.monotonic() - began_at)))
    innocents = ("innocent-1", "innocent-2")
    ended = [key for key in innocents if any(run.has_ended for run in stage.runs(key))]
    return Outcome(
        tasks=2,
        not_back=len(innocents) - len(ended),
        ended_twice=_ended_twice(stage, innocents),
        at_once=0,
        runs=len(stage.runs("poison")),
    )


def _duplicate(stage: Stage) -> Outcome:
    _running(stage, ("one",))
    stage.worker("b")
    stage.publish("one")
    # Time to begin it beside the first.
    stage.wait(lambda: len(stage.runs("one")) > 1, _NOTICE_SECONDS)
    return _after(stage, ("one",), (), time.monotonic())


def _deploy(stage: Stage) -> Outcome:
    keys = ("one", "two")
    a = _running(stage, keys)
    stage.worker("b")
    main, sent_at = a.pid, time.monotonic()
    a.signal_main(signal.SIGTERM)
    if not stage.wait(lambda: a.pid != main, _GRACE_SECONDS):
        a.signal_all(signal.SIGKILL)
    return _after(stage, keys, keys, sent_at)


def _eta(stage: Stage) -> Outcome:
    a = stage.worker("a")
    stage.open_gate()
    published_at = time.monotonic()
    stage.publish("later", delay=_ETA_SECONDS)
    due_at = time.monotonic() + _ETA_SECONDS
    time.sleep(max(0.0, published_at + _ETA_SECONDS / 2 - time.monotonic()))
    a.signal_all(signal.SIGKILL)
    stage.worker("b")
    outcome = _after(stage, ("later",), (), due_at)
    runs = stage.runs("later")
    seconds = max(0.0, runs[0].started_at - due_at) if runs else None
    return replace(outcome, seconds=seconds)


def _long(stage: Stage) -> Outcome:
    keys = ("one", "two")
    _running(stage, keys)
    stage.worker("b")
    waited = 2 * (stage.system.redelivery_seconds or 10)
    is_back = stage.wait(lambda: all(len(stage.runs(key)) > 1 for key in keys), waited)
    if is_back:
        time.sleep(1)
    return _after(stage, keys, (), time.monotonic())


def _running(stage: Stage, keys: Sequence[str], running: int | None = None) -> Unit:
    stage.prepare("b")
    a = stage.worker("a")
    stage.publish(*keys)
    if running is None:
        stage.wait_for_start(*keys)
    else:
        if not stage.wait(lambda: sum(bool(stage.runs(key)) for key in keys) >= running):
            stage.wait_for_start(*keys[:running])
    return a


def _after(
    stage: Stage,
    keys: Sequence[str],
    struck: Sequence[str],
    at: float,
) -> Outcome:
    """Wait until the struck have begun again, let all end, and count."""

    def began(key: str) -> float | None:
        return next((run.started_at for run in stage.runs(key) if run.started_at > at), None)

    def ended(key: str) -> bool:
        return any(run.has_ended for run in stage.runs(key))

    stage.wait(lambda: all(began(key) or ended(key) for key in struck))
    times = [began(key) for key in struck if began(key) is not None or not ended(key)]
    stage.open_gate()
    stage.wait(lambda: all(map(ended, keys)), _NOTICE_SECONDS if None in times else None)
    time.sleep(_QUIET_SECONDS)
    known = [time_ for time_ in times if time_ is not None]
    is_whole = bool(known) and len(known) == len(times)
    return Outcome(
        tasks=len(keys),
        not_back=sum(not ended(key) for key in keys),
        ended_twice=_ended_twice(stage, keys),
        at_once=sum(_overlaps(stage.runs(key)) for key in keys),
        seconds=max(known) - at if is_whole else None,
    )


def _ended_twice(stage: Stage, keys: Sequence[str]) -> int:
    return sum(sum(run.has_ended for run in stage.runs(key)) > 1 for key in keys)


def _overlaps(runs: Sequence[Run]) -> bool:
    return any(later.started_at < earlier.last_seen_at for earlier, later in combinations(runs, 2))


_ALL = (
    Fault("child", "SIGKILL to the process that runs the task", _child),
    Fault(
        "worker", "SIGKILL to the whole worker: two run, the others are fetched or wait", _worker
    ),
    Fault("zombie", "SIGSTOP until its tasks run elsewhere, then SIGCONT", _zombie),
    Fault("restart", "the server is stopped and started, with an append-only file", _restart),
    Fault("poison", "a task that kills its process each time: 30 seconds of it", _poison),
    Fault("duplicate", "the same key is published again while it runs", _duplicate),
    Fault("deploy", "SIGTERM, and SIGKILL 4 s later, during a long task", _deploy),
    Fault("eta", "the worker is killed while a countdown of 8 s runs", _eta),
    Fault("long", "a task takes twice the time of a redelivery", _long),
)

#: By name, in the order of the table.
FAULTS: Mapping[str, Fault] = {one.name: one for one in _ALL}
