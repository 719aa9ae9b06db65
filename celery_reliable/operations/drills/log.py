"""What a drill's tasks did: rows that its processes write to one file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery_reliable.operations.drills.judging import overlapping, unfinished

__all__ = ["LOG_NAME", "Log", "Run"]

LOG_NAME = "log.jsonl"


@dataclass
class Run:
    """One run of a task.  Times are seconds of the machine's monotonic clock.

    `last_seen_at` is when it was last seen to go on: when it ended, or else a moment before it was
    killed or frozen.
    """

    task_id: str
    attempt: int
    worker: str
    pid: int
    started_at: float
    last_seen_at: float
    has_finished: bool = False


class Log:
    """Reads the rows of a drill."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOG_NAME
        self._read = 0
        self._rest = b""
        self._runs: dict[str, Run] = {}
        self._published: list[str] = []
        #: Since when runs of a worker do not count, as it was declared dead.
        self._declared: dict[str, float] = {}

    def published(self) -> list[str]:
        """The ids of which somebody was told that they are published."""
        self._read_on()
        return list(self._published)

    def runs(self, task: str = "") -> list[Run]:
        """The runs by now, of one task or of all, in the order in which they began."""
        self._read_on()
        return [run for run in self._runs.values() if task in ("", run.task_id)]

    def again(self) -> dict[str, Run]:
        """The second run of each task that has one."""
        return {task: runs[1] for task, runs in self._by_task().items() if len(runs) > 1}

    def unfinished(self) -> list[str]:
        """What was published, and has no run that came to its end."""
        return unfinished(self.published(), self.runs())

    def declare(self, worker: str, at: float) -> None:
        """Note that a worker was declared dead by then."""
        self._declared[worker] = at
        with self.path.open("a") as file:
            file.write(json.dumps({"at": at, "kind": "declared", "worker": worker}) + "\n")

    def settled(self, task: str, state: str, at: float) -> None:
        """Note that the ledger had no record of a task any more."""
        with self.path.open("a") as file:
            row = {"at": at, "kind": "settled", "task": task, "state": state}
            file.write(json.dumps(row) + "\n")

    def overlaps(self) -> int:
        """How often two runs of one task went on at once, on workers not declared dead."""
        return sum(len(overlapping(runs, self._counts_until)) for runs in self._by_task().values())

    def zombies(self) -> int:
        """How many runs went on after their worker had been declared dead."""
        return sum(run.last_seen_at > self._counts_until(run) for run in self.runs())

    def _counts_until(self, run: Run) -> float:
        return min(run.last_seen_at, self._declared.get(run.worker, run.last_seen_at))

    def _by_task(self) -> dict[str, Sequence[Run]]:
        found = defaultdict(list)
        for run in self.runs():
            found[run.task_id].append(run)
        return dict(found)

    def _read_on(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._read)
            found = file.read()
        self._read += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, row: dict[str, Any]) -> None:
        at, kind = row["at"], row["kind"]
        if kind == "published":
            self._published.append(row["task"])
        elif kind == "begin":
            self._runs[row["run"]] = Run(
                row["task"], row["attempt"], row["worker"], row["pid"], at, at
            )
        elif kind in ("alive", "end"):
            run = self._runs[row["run"]]
            run.last_seen_at, run.has_finished = at, kind == "end"
