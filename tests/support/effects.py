"""What tasks really did: each run's start, signs of life and end, by one server's clock.

Runs are written to a Redis of their own, so that the broker and the ledger may be stopped, frozen
or emptied in a test without the evidence being touched.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from typing import Any
from uuid import uuid4

import redis

from tests.support.waiting import wait_for

ROWS_KEY = "rows"

# One step on the server, so that rows stand in the order of their times.
APPEND_ROW = """
local now = redis.call('TIME')
redis.call('RPUSH', KEYS[1], string.format('%.0f ', now[1] * 1000000 + now[2]) .. ARGV[1])
"""

# Who is killed as soon as its run can be seen has been counted, too: its next run is another one.
COUNT_RUN = "local number = redis.call('INCR', KEYS[2])" + APPEND_ROW + "return number\n"

NOTE_LIFE = """
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now[1] * 1000000 + now[2]))
"""

ALIVE_KEY = "alive"


@dataclass(frozen=True)
class Run:
    """One run of a task's body. Times are seconds of the effects server's clock."""

    run_id: str
    task_id: str
    task: str
    object_id: str | None
    attempt: int | None
    retries: int
    redelivered: bool
    worker: str
    pid: int
    started_at: float
    alive_at: float
    ended_at: float | None
    outcome: str | None
    parent_id: str | None = None

    @property
    def last_seen_at(self) -> float:
        """Until when the run is proven to have lasted; it may have lasted a moment longer."""
        return self.ended_at if self.ended_at is not None else self.alive_at

    @property
    def has_finished(self) -> bool:
        """Whether its body came to its end without an exception."""
        return self.outcome == "finished"


class RunRecorder:
    """What a task's body holds of its own run."""

    def __init__(self, client: redis.Redis, run_id: str, number: int) -> None:
        self._client = client
        self._run_id = run_id
        self.number = number

    def tick(self) -> None:
        """A sign of life: a killed run is known to have lasted until its last one."""
        self._client.eval(NOTE_LIFE, 1, ALIVE_KEY, self._run_id)

    def end(self, outcome: str) -> None:
        row = json.dumps({"kind": "end", "run_id": self._run_id, "outcome": outcome})
        self._client.eval(APPEND_ROW, 1, ROWS_KEY, row)


class Effects:
    """Writes and reads runs; holds the gates at which tasks wait for a test's word."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client
        self._rows: list[dict[str, Any]] = []

    # For the tasks.

    def start(self, task: Any, object_id: str | None = None) -> RunRecorder:
        """Write that a run of `task` (a bound Celery task) begins."""
        request = task.request
        run_id = uuid4().hex
        row = {
            "kind": "start", "run_id": run_id, "task_id": request.id, "task": task.name,
            "object_id": object_id, "attempt": getattr(task, "attempt", None),
            "retries": request.retries,
            "redelivered": bool((request.delivery_info or {}).get("redelivered")),
            "worker": request.hostname, "pid": os.getpid(), "parent_id": request.parent_id,
        }  # fmt: skip
        keys = (ROWS_KEY, f"runs:{request.id}")
        number = self.client.eval(COUNT_RUN, len(keys), *keys, json.dumps(row))
        return RunRecorder(self.client, run_id, int(number))

    @contextmanager
    def run(self, task: Any, object_id: str | None = None) -> Iterator[RunRecorder]:
        """Write the start and, however the body ends short of a kill, the end."""
        recorder = self.start(task, object_id)
        try:
            yield recorder
        except BaseException as error:
            recorder.end(type(error).__name__)
            raise
        recorder.end("finished")

    def is_open(self, gate: str) -> bool:
        return bool(self.client.exists(f"gate:{gate}"))

    # For the tests.

    def open_gate(self, gate: str) -> None:
        """Let every task that waits at this gate, or comes to it later, go on."""
        self.client.set(f"gate:{gate}", "open")

    def close_gate(self, gate: str) -> None:
        self.client.delete(f"gate:{gate}")

    def now(self) -> float:
        """Seconds of the clock that runs are written with."""
        seconds, microseconds = self.client.time()
        return float(seconds + microseconds / 1e6)

    def clear(self) -> None:
        """Forget every run and close every gate."""
        self.client.flushdb()
        self._rows = []

    def runs(self, which: str | None = None) -> list[Run]:
        """All runs, or those of one task id or object id, in the order of their starts."""
        fresh: list[bytes] = self.client.lrange(  # type: ignore[assignment]
            ROWS_KEY, len(self._rows), -1
        )
        self._rows += [_row(line) for line in fresh]
        ends = {row["run_id"]: row for row in self._rows if row["kind"] == "end"}
        alive: dict[bytes, bytes] = self.client.hgetall(ALIVE_KEY)  # type: ignore[assignment]
        return [
            _run(row, ends.get(row["run_id"]), alive.get(row["run_id"].encode()))
            for row in self._rows
            if row["kind"] == "start" and which in (None, row["task_id"], row["object_id"])
        ]

    def run_of(self, task_id: str, number: int = 1, *, timeout_seconds: float = 20) -> Run:
        """The task's run of that number; waits until it has begun."""
        what = f"run {number} of {task_id}"
        wait_for(lambda: len(self.runs(task_id)) >= number, timeout_seconds, what)
        return self.runs(task_id)[number - 1]

    def starts(self, which: str) -> list[float]:
        """When each run of one task id or object id began."""
        return [run.started_at for run in self.runs(which)]

    def finished(self, which: str | None = None) -> list[Run]:
        """The runs whose body came to its end without an exception."""
        return [run for run in self.runs(which) if run.has_finished]

    def overlaps(self, which: str | None = None) -> list[tuple[Run, Run]]:
        """Pairs of runs proven to have gone on at the same time, of one task id or object id, or of
        each task id. A killed run counts until its last sign of life only.
        """
        if which is not None:
            return _overlapping(self.runs(which))
        by_task = defaultdict(list)
        for run in self.runs():
            by_task[run.task_id].append(run)
        return [pair for runs in by_task.values() for pair in _overlapping(runs)]


def _overlapping(runs: list[Run]) -> list[tuple[Run, Run]]:
    """Return the pairs of which the later one began before the earlier was over; *runs* are in the
    order in which they began.
    """
    return [
        (earlier, later)
        for earlier, later in combinations(runs, 2)
        if later.started_at < earlier.last_seen_at
    ]


def _row(line: bytes) -> dict[str, Any]:
    at_us, _, row = line.partition(b" ")
    return {**json.loads(row), "at_us": int(at_us)}


def _run(start: dict[str, Any], end: dict[str, Any] | None, alive_us: bytes | None) -> Run:
    said = {name: value for name, value in start.items() if name not in ("kind", "at_us")}
    started_at = start["at_us"] / 1e6
    return Run(
        **said,
        started_at=started_at,
        alive_at=started_at if alive_us is None else int(alive_us) / 1e6,
        ended_at=None if end is None else end["at_us"] / 1e6,
        outcome=None if end is None else end["outcome"],
    )
