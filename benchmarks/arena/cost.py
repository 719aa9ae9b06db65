"""What a system takes for tasks that do nothing: worked off in a second, and the server's CPU."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psutil

from benchmarks.arena.stage import NotReady, Stage

__all__ = ["Cost", "cpu_seconds", "measure"]

#: Of the tasks, at the beginning and at the end, that no time is taken of.
_EDGE = 0.1
_WORK_SECONDS = 300.0


@dataclass(frozen=True)
class Cost:
    """One turn of one system."""

    drained_per_second: float
    #: Milliseconds of a core that all processes of the worker take for a task.  Of what other
    #: processes do to the machine meanwhile, this depends least.
    worker_cpu_ms: float
    #: Milliseconds of a core, of publishing and working off; None where the server does not say.
    server_cpu_ms: float | None


def measure(stage: Stage, tasks: int) -> Cost:
    """Fill the queue, then let one worker with room for two work it off."""
    before = stage.server.cpu_seconds()
    stage.publish(*(f"n{number}" for number in range(tasks)), mode="nothing")
    worker = stage.worker("a")
    file, edge = stage.folder / "nothing", int(tasks * _EDGE)

    def done() -> int:
        return file.read_bytes().count(b"\n") if file.exists() else 0

    def wait_until(count: int) -> tuple[float, int, float]:
        if not stage.wait(lambda: done() >= count, _WORK_SECONDS):
            raise NotReady(f"{done()} of {tasks} were worked off:\n{stage.log('a')}")
        return time.monotonic(), done(), sum(map(cpu_seconds, worker.members()))

    (began_at, first, cpu), (ended_at, last, more) = wait_until(edge), wait_until(tasks - edge)
    wait_until(tasks)
    after = stage.server.cpu_seconds()
    known = before is not None and after is not None
    return Cost(
        drained_per_second=(last - first) / (ended_at - began_at),
        worker_cpu_ms=(more - cpu) / (last - first) * 1000,
        server_cpu_ms=(after - before) / tasks * 1000 if known else None,  # type: ignore[operator]
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU that a process has taken; none of one that is gone."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
