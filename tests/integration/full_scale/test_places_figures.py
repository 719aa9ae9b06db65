"""The figures of places and lines; small unless `--full` is given, shown with `-s`."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, pairwise

import redis

from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, LEDGER, LOCKS, RECORD, most_at_once, percentile
from tests.support.effects import Run
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.waiting import wait_for

#: How many of one object there may be at a time, by task.
PLACES = {"three": 3, "placed": 2}


class Fleet:
    """Workers of which any may be killed: another takes its place."""

    def __init__(self, project: Project, size: int) -> None:
        self._project = project
        self._names: Iterator[str] = (f"worker-{n}" for n in count())
        self._alive: dict[str, Worker] = {}
        for _ in range(size):
            self._start()

    def _start(self) -> None:
        name = next(self._names)
        self._alive[name] = self._project.start_worker(name)

    def kill(self, run: Run, *, whole: bool) -> None:
        """Kill the process of a run, or its whole worker."""
        name = run.worker.partition("@")[0]
        if whole and name in self._alive:
            self._alive.pop(name).kill_group()
            self._start()
            return
        with suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGKILL)


@promise("one-object")
def test_never_more_than_there_are_places_whatever_is_killed(soon: Project, scale: Scale) -> None:
    """The oracle knows what tasks wrote, and nothing of places."""
    kills = scale.of(full=30, small=4)
    n_tasks = scale.of(full=240, small=24)
    fleet, effects = Fleet(soon, 3), soon.effects
    chance = random.Random(kills)

    def live() -> list[Run]:
        return [run for run in effects.runs() if run.ended_at is None]

    killed: set[str] = set()
    for number in range(kills):
        # On a slow machine all that were sent before have ended by now.
        for name in sorted(PLACES) * (n_tasks // kills // len(PLACES)):
            soon.send(name, f"{name} object", 0.3, ignore_result=True)
        alive = wait_for(
            lambda: [run for run in live() if run.run_id not in killed], 30, "something runs"
        )
        victim = chance.choice(alive)
        killed.add(victim.run_id)
        fleet.kill(victim, whole=number % 3 == 2)

    client = soon.redis.client()
    ended = lambda: client.zcard(DEAD) == len(client.keys(RECORD + "*"))  # noqa: E731
    wait_for(ended, 120 + n_tasks, "every task ended")
    assert not client.keys(LOCKS)
    most = {name: most_at_once(effects.runs(f"{name} object")) for name in PLACES}
    finished = {run.task_id for run in effects.finished()}
    print(f"\n{kills} kills among {n_tasks} tasks: at once {most}, dead {client.zcard(DEAD)}")
    assert all(0 < most[name] <= places for name, places in PLACES.items())
    assert len(finished) + client.zcard(DEAD) >= n_tasks
    client.close()


@promise("line-in-order")
def test_a_long_line_goes_on_in_order_and_asks_for_nothing_meanwhile(
    project: Project, scale: Scale
) -> None:
    n_waiters = scale.of(full=1000, small=25)
    worker = project.start_worker("worker", concurrency=2)
    effects, client = project.effects, project.redis.client()
    holder = project.send("in_line_gate", "object", "gate", ignore_result=True)
    effects.run_of(holder.id)
    # One of two processes runs the holder; no slot is held by those that wait.
    before = calls_in(client, 2)
    waiters = [
        str(project.send("in_line_gate", "object", "gate", ignore_result=True).id)
        for _ in range(n_waiters)
    ]
    (line,) = wait_for(lambda: client.keys(LEDGER + "waiting:*"), 60, "a line")
    wait_for(lambda: client.zcard(line) == n_waiters, 60 + n_waiters / 10, "all stand in line")

    while_waiting = calls_in(client, 2)
    effects.open_gate("gate")

    wait_for(lambda: len(effects.finished("object")) == n_waiters + 1, 60 + n_waiters, "all ran")
    runs = effects.runs("object")
    gaps = [later.started_at - (earlier.ended_at or 0.0) for earlier, later in pairwise(runs)]
    print(
        f"\n{n_waiters} in line: a place is passed on after {percentile(gaps, 50) * 1000:.1f} ms, "
        f"p99 {percentile(gaps, 99) * 1000:.1f} ms, at most {max(gaps) * 1000:.1f} ms; scripts in "
        f"2 s with nobody in line {before}, with all of them {while_waiting}"
    )
    assert [run.task_id for run in runs][1:] == waiters
    assert min(gaps) > 0
    # A worker and its passes ask now and then; those that wait do not.
    assert while_waiting <= before + 6
    assert worker.is_running
    client.close()


def calls_in(client: redis.Redis, seconds: float) -> int:
    """How many scripts the server runs in so many seconds."""

    def calls() -> int:
        stats: dict[str, dict[str, int]] = client.info("commandstats")  # type: ignore[assignment]
        return sum(stats.get(f"cmdstat_{one}", {}).get("calls", 0) for one in ("eval", "evalsha"))

    first, until = calls(), time.monotonic() + seconds
    wait_for(lambda: time.monotonic() >= until, seconds + 5, "time has passed")
    return calls() - first
