"""The rig: one private Redis, and the processes of one contender after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from benchmarks.contenders import Contender
from benchmarks.server import BROKER_DB, LOCK_DB, RESULT_DB, ServerCounts
from tests.support.processes import REPOSITORY, Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

__all__ = ["Producer", "Rig", "Sight"]

WORK_SECONDS = 300.0
_WORKER_OPTIONS = ("--loglevel", "ERROR", "--without-gossip", "--without-mingle")


@dataclass(frozen=True)
class Sight:
    """Where a worker and its server stand at one instant: CPU in seconds since they began."""

    at_seconds: float
    counts: ServerCounts
    main_seconds: float
    children_seconds: float
    #: Of all processes of the machine.
    machine_seconds: float


class Producer:
    """A process that publishes one contender's tasks, as told."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, verb: str, **request: Any) -> dict[str, Any]:
        """Have it done and return the answer.  Raises RuntimeError when the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"verb": verb, **request}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that publishes ended; what it wrote is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Rig:
    """Starts and ends what one measurement needs, on a server that is shared by all of them."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.client = server.client()
        self._results = server.client(RESULT_DB)
        self._polls = 0
        self._worker: Worker | None = None

    def reset(self) -> None:
        """Empty the server, before the first process of a contender."""
        self.client.flushall()
        self.client.config_resetstat()

    @contextmanager
    def producer(self, contender: Contender) -> Iterator[Producer]:
        """A process that publishes, which ends when it is told no more."""
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.producer"],
            env={**self._environ(contender), "PYTHONPATH": str(REPOSITORY)},
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Producer(process)
            except BaseException:
                process.kill()
                raise

    @contextmanager
    def worker(
        self,
        contender: Contender,
        *,
        pool: str = "prefork",
        concurrency: int = 2,
        queues: Sequence[str] = (),
    ) -> Iterator[Worker]:
        """A worker, which is stopped in the end.  Raises RuntimeError if it ends otherwise."""
        name = f"{contender.name}-{uuid4().hex[:8]}"
        ready = self.folder / f"ready-{name}"
        worker = Worker(
            name,
            app="benchmarks.app",
            environ={**self._environ(contender), "READY_FILE": str(ready)},
            log_path=self.folder / f"{name}.log",
            is_ready=ready.exists,
            concurrency=concurrency,
            pool=pool,
            options=(*_WORKER_OPTIONS, *(("-Q", ",".join(queues)) if queues else ())),
        )
        try:
            worker.wait_until_ready()
            self._worker = worker
            yield worker
            if worker.stop():
                raise _ended(worker)
        finally:
            self._worker = None
            worker.end()

    def wait_for_results(self, count: int) -> None:
        """Wait until so many tasks have stored a result, since `reset`.  Raises RuntimeError when
        the worker ends instead.
        """

        def has_them() -> bool:
            if self._worker is not None and not self._worker.is_running:
                raise _ended(self._worker)
            return self.results() >= count

        wait_for(has_them, WORK_SECONDS, f"{count} results")

    def results(self) -> int:
        """How many tasks have stored a result, since `reset`."""
        self._polls += 1
        return int(self._results.dbsize())

    def held_tasks(self) -> list[Path]:
        """The files of the tasks that hold: each runs until its file is gone."""
        return list(self.folder.glob("hold-*"))

    def look(self, worker: Worker) -> Sight:
        """Look at the server and at the worker's processes."""
        counts, at_seconds = ServerCounts.now(self.client), time.perf_counter()
        times = psutil.cpu_times()
        return Sight(
            at_seconds=at_seconds,
            counts=counts,
            main_seconds=_cpu_seconds(worker.pid),
            children_seconds=sum(map(_cpu_seconds, worker.children())),
            machine_seconds=times.user + times.nice + times.system,
        )

    def count_connections(self, worker: Worker) -> int:
        """Return how many connections to the server the worker's processes have.

        A process that was forked may still have those of its parent: each counts once.
        """
        return len(
            {
                one.laddr
                for pid in (worker.pid, *worker.children())
                for one in psutil.Process(pid).net_connections("tcp")
                if one.raddr and one.raddr.port == self.server.port
            }
        )

    def forget_polls(self) -> int:
        """Return how often `results` has asked the server, since this was called last."""
        polls, self._polls = self._polls, 0
        return polls

    def held_bytes(self, *databases: int) -> int:
        """What the server keeps in these databases: the least of some looks.

        A pass of the sweeper leaves a key for as long as it lasts.  Nothing is counted of the
        server's own tables, nor of connections.
        """
        return min(sum(map(self._database_bytes, databases)) for _ in range(5))

    @contextmanager
    def scripted_commands(self) -> Iterator[list[str]]:
        """Note each command that a script executes; known at the end.

        A server that is watched is slower: nothing else is measured meanwhile.
        """
        end = f"end-{uuid4()}"
        found: list[str] = []
        with self.server.client() as client, client.monitor() as monitor:
            yield found
            self.client.echo(end)
            while end not in (seen := monitor.next_command())["command"]:
                if seen["client_type"] == "lua":
                    found.append(seen["command"])

    def _database_bytes(self, database: int) -> int:
        with self.server.client(database) as client:
            pipeline = client.pipeline(transaction=False)
            for key in client.scan_iter(count=1000):
                pipeline.memory_usage(key, samples=0)
            # A key may have gone meanwhile.
            return sum(used or 0 for used in pipeline.execute())

    def _environ(self, contender: Contender) -> dict[str, str]:
        return {
            **os.environ,
            "BENCH_CONTENDER": contender.name,
            "BENCH_FOLDER": str(self.folder),
            "BROKER_URL": self.server.url(BROKER_DB),
            "RESULT_URL": self.server.url(RESULT_DB),
            "LOCK_URL": self.server.url(LOCK_DB),
        }


def _ended(worker: Worker) -> RuntimeError:
    return RuntimeError(
        f"the worker {worker.name} ended with {worker.exit_code}:\n{worker.log_text(40)}"
    )


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
