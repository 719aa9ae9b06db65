"""How fast this package, stock Celery and other systems publish tasks and work them off, in turns.

Each system has its defaults and stores results, and its worker has room for the same number of
tasks: Celery's in as many processes, the others' in two.  The body of a task does one INCR.  A
ratio is that of two turns of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import redis

from benchmarks.arena import body
from benchmarks.arena.cost import cpu_seconds
from benchmarks.arena.stage import NotReady, Stage
from benchmarks.arena.systems import OURS, STOCK, SYSTEMS, System
from benchmarks.figures import Row, Table, spread

#: The part of the tasks after which a worker's processes are all up, and the part that is left when
#: some of them have nothing to do any more.
_BEGINNING, _END = 0.3, 0.1
_WORK_SECONDS = 300.0
#: Of the systems other than Celery: their tasks are spread over so many processes.
_PROCESSES = 2


@dataclass(frozen=True)
class Load:
    """Tasks of one mode, and the room of the worker that runs them."""

    mode: str
    room: int
    told: str


_ALL = (
    Load("incr", 2, "one INCR, two at a time"),
    Load("five-ms", 8, "5 ms of waiting and one INCR, eight at a time"),
)
LOADS = {one.mode: one for one in _ALL}


def _celery(room: int) -> tuple[str, ...]:
    app = "benchmarks.arena.apps.with_celery"
    return ("celery", "-A", app, "worker", "-c", str(room), "--loglevel", "WARNING")


def _dramatiq(room: int) -> tuple[str, ...]:
    processes = ("-p", str(_PROCESSES), "-t", str(room // _PROCESSES))
    return ("dramatiq", "benchmarks.arena.apps.with_dramatiq", *processes)


def _taskiq(room: int) -> tuple[str, ...]:
    processes = ("--workers", str(_PROCESSES), "--max-async-tasks", str(room // _PROCESSES))
    return ("taskiq", "worker", "benchmarks.arena.apps.with_taskiq:broker", *processes)


def _saq(room: int) -> tuple[str, ...]:
    return ("saq", "benchmarks.arena.apps.with_saq.settings", "--workers", str(_PROCESSES))


#: The words that start a worker with room for so many tasks.
WORKERS: dict[str, Callable[[int], tuple[str, ...]]] = {
    STOCK: _celery,
    OURS: _celery,
    "dramatiq": _dramatiq,
    "taskiq": _taskiq,
    "saq": _saq,
}

#: By default dramatiq fetches twice as many messages ahead as a process has threads, and sleeps
#: while it has them. This is what it fetches for its default of eight threads.
ENVIRON = {"dramatiq": {"dramatiq_queue_prefetch": "16"}}


def main() -> None:
    """Measure and print."""
    options = _options()
    chosen = [SYSTEMS[name] for name in options.only]
    systems = [one for one in chosen if one.version() is not None]
    about = {
        "at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "tasks": options.tasks,
        "versions": {one.name: one.version() for one in systems},
        "not_measured": [one.name for one in chosen if one.version() is None],
    }
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="speed-") as work:
        for turn in range(1, options.rounds + 1):
            for load in (LOADS[name] for name in options.loads):
                # A machine may grow slower.
                for system in systems if turn % 2 else systems[::-1]:
                    rows.append(_turn(turn, system, load, options.tasks, Path(work)))
    print(", ".join(f"{name} {told}" for name, told in about.items()))
    _print(Table(rows), [LOADS[name] for name in options.loads], [one.name for one in systems])
    if options.json:
        content = {"about": about, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _turn(turn: int, system: System, load: Load, tasks: int, work: Path) -> Row:
    started = replace(
        system,
        worker=(sys.executable, "-m", *WORKERS[system.name](load.room)),
        environ={
            "ARENA_SLOTS": str(load.room // _PROCESSES),
            **ENVIRON.get(system.name, {}),
        },
        companion=(),
    )
    folder = Path(tempfile.mkdtemp(dir=work))
    loaded = os.getloadavg()[0]
    with Stage(started, folder, _WORK_SECONDS).open() as stage:
        figures = {**_measure(stage, load, tasks), "load_average": loaded}
    rate = figures["drain_per_second"]
    print(f"round {turn}: {load.mode}: {system.name}: {rate:.0f} a second, load {loaded:.1f}")
    sys.stdout.flush()
    return Row(turn, system.name, {f"{load.mode}_{name}": one for name, one in figures.items()})


def _measure(stage: Stage, load: Load, tasks: int) -> dict[str, float]:
    """Fill the queue, then let one worker work it off."""
    stage.publish(*(f"n{number}" for number in range(tasks)), mode=load.mode)
    seconds, published = map(float, (stage.folder / body.PUBLISHED).read_text().split())
    worker = stage.worker("a")
    with redis.Redis.from_url(f"{stage.server.url}/{body.COUNTER_DB}") as client:

        def ran() -> int:
            return int(client.get(body.COUNTER) or 0)

        def look_at(count: int) -> tuple[float, int, float, float]:
            if not stage.wait(lambda: ran() >= count, _WORK_SECONDS):
                raise NotReady(f"{ran()} of {tasks} were worked off:\n{stage.log('a')}")
            server = stage.server.cpu_seconds() or 0.0
            return time.monotonic(), ran(), sum(map(cpu_seconds, worker.members())), server

        began_at, first, cpu, server_cpu = look_at(int(tasks * _BEGINNING))
        ended_at, last, later_cpu, later_server_cpu = look_at(int(tasks * (1 - _END)))
    if last == first:
        raise NotReady("All was done before the worker was looked at: give it more tasks.")
    return {
        "enqueue_per_second": published / seconds,
        "drain_per_second": (last - first) / (ended_at - began_at),
        "worker_cpu_us": (later_cpu - cpu) / (last - first) * 1e6,
        "redis_us": (later_server_cpu - server_cpu) / (last - first) * 1e6,
    }


def _print(table: Table, loads: Sequence[Load], names: Sequence[str]) -> None:
    for load in loads:
        print(f"\n{load.mode}: {load.told}; beside {STOCK} in the same round")
        for figure in ("drain_per_second", "enqueue_per_second", "worker_cpu_us", "redis_us"):
            print(f"  {figure}")
            for name in names:
                measured = table.median(f"{load.mode}_{figure}", name) or 0.0
                ratios = table.ratios(f"{load.mode}_{figure}", name, STOCK)
                beside = f"  x{spread(ratios)}" if ratios and name != STOCK else ""
                print(f"    {name:<16} {measured:>9.0f}{beside}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.arena.speed", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each system (5)")
    parser.add_argument("--tasks", type=int, default=5_000, help="of a turn (5000)")
    parser.add_argument(
        "--only", nargs="+", choices=WORKERS, default=list(WORKERS), metavar="SYSTEM", help="these"
    )
    parser.add_argument(
        "--loads", nargs="+", choices=LOADS, default=list(LOADS), metavar="LOAD", help="these"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of it there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
