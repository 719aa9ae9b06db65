"""The figures of places and lines; small unless `--full` is given, shown with `-s`."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import DEAD, LOCKS, RECORD, most_at_once
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
    for _ in range(n_tasks // 2):
        for name in PLACES:
            soon.send(name, f"{name} object", 0.3, ignore_result=True)
    chance = random.Random(kills)

    def live() -> list[Run]:
        return [run for run in effects.runs() if run.ended_at is None]

    killed: set[str] = set()
    for number in range(kills):
        wait_for(lambda: any(run.run_id not in killed for run in live()), 30, "something runs")
        victim = chance.choice([run for run in live() if run.run_id not in killed])
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
