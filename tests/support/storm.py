"""Workers that are killed at random moments and started again under the same names."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.effects import Effects, Run
from tests.support.processes import Worker
from tests.support.waiting import wait_for

# A run's end is written before its outcome is stored and settled, which takes milliseconds.
EXPLAINED_SECONDS = 2.0
FOREVER_SECONDS = 600.0


@dataclass(frozen=True)
class Kill:
    """One SIGKILL to a worker's whole group, and when all of it was gone.

    Seconds of the effects server's clock.
    """

    worker: str
    at: float


class Storm:
    """Kills one of its workers now and then, until a test has seen enough.

    `start` starts a worker of a name and does not wait for it. A successor bears its predecessor's
    name, and is a stranger to its claims all the same.
    """

    def __init__(
        self, start: Callable[[str], Worker], names: Sequence[str], effects: Effects, seed: int
    ) -> None:
        self._start = start
        self._effects = effects
        self._dice = random.Random(seed)
        self.kills: list[Kill] = []
        self.workers = {name: start(name) for name in names}
        for worker in self.workers.values():
            worker.wait_until_ready()

    def kill_one(self) -> Kill:
        """Kill the group of a worker of those that are up, if any is, and start its successor."""
        up = [name for name, worker in self.workers.items() if worker.is_ready]
        name = self._dice.choice(up or list(self.workers))
        self.workers[name].kill_group()
        # Afterwards: until the signal, which is not sent at once, its runs went on.
        kill = Kill(name, self._effects.now())
        self.workers[name] = self._start(name)
        self.kills.append(kill)
        return kill

    def rage(
        self,
        is_over: Callable[[], bool],
        pause_seconds: tuple[float, float],
        timeout_seconds: float,
    ) -> None:
        """Kill one after each pause, whose length is drawn from that range, until `is_over`.

        A pause begins when one of them is up: a machine that takes longer than a pause to start
        one would see nothing but starts.

        Raises AssertionError when that does not come to pass in `timeout_seconds`.
        """
        began_at = self._effects.now()
        while not is_over():
            assert self._effects.now() - began_at < timeout_seconds, "the storm does not end"
            wait_for(
                lambda: is_over() or any(worker.is_ready for worker in self.workers.values()),
                FOREVER_SECONDS,
                "one that is up",
            )
            next_at = self._effects.now() + self._dice.uniform(*pause_seconds)
            wait_for(
                lambda at=next_at: self._effects.now() >= at or is_over(),
                FOREVER_SECONDS,
                "the next kill",
            )
            if not is_over():
                self.kill_one()

    def unexplained(self) -> list[Run]:
        """The finished runs that another finished run of the same task followed for no reason.

        One reason is that the worker was killed right after the run, before it could be settled.
        The other is that the same befell the task that had published it: when that runs again it
        publishes its canvas's next again. A host that runs again publishes a canvas anew, of other
        ids, and each of them ends with the host's id. Whatever else was settled must not run again.
        """
        by_task = defaultdict(list)
        for run in self._effects.finished():
            by_task[run.task_id].append(run)
        earlier = [run for runs in by_task.values() for run in runs[:-1]]
        return [
            run
            for run in earlier
            if not self._is_cut_off(run)
            and len(by_task.get(run.parent_id or "", ())) < 2
            and self._times_hosted(run) < 2
        ]

    def story_of(self, runs: Sequence[Run]) -> str:
        """Return what the tasks of *runs*, and those that published them, did, and the kills."""
        ids = {run.task_id for run in runs} | {run.parent_id for run in runs}
        all_runs = [run for run in self._effects.runs() if run.task_id in ids]
        lines = [(run.started_at, str(run)) for run in all_runs]
        since = min((run.started_at for run in all_runs), default=0.0)
        lines += [(kill.at, f"kill of {kill.worker}") for kill in self.kills if kill.at >= since]
        return "\n".join(f"{at:.3f} {line}" for at, line in sorted(lines))

    def _times_hosted(self, run: Run) -> int:
        """How often there ran, by this id, a task that replaced itself by the canvas of *run*."""
        return sum(one.task != run.task for one in self._effects.runs(run.task_id))

    def _is_cut_off(self, run: Run) -> bool:
        assert run.ended_at is not None
        name = run.worker.partition("@")[0]
        return any(
            kill.worker == name and 0 <= kill.at - run.ended_at <= EXPLAINED_SECONDS
            for kill in self.kills
        )
