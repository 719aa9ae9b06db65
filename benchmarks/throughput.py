"""What the package costs: tasks that do nothing, beside stock Celery with acks_late, in one run.

`python -m benchmarks.throughput [--tasks N] [--rounds N]` starts a Redis and a prefork worker of
concurrency 2 of its own for each measurement, and prints both rates and their ratio, round by
round. Figures of one machine say little; the ratio of one round says more.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import REPOSITORY
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

WORKER_OPTIONS = ("-c", "2", "--loglevel", "ERROR", "--without-gossip", "--without-mingle")
#: Neither the worker's start nor its last prefetched tasks are measured.
_EDGE = 50


@dataclass(frozen=True)
class Rates:
    """Tasks per second, and Redis commands per task while they are worked off."""

    published: float
    worked_off: float
    commands: float


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    published, worked_off = [], []
    for turn in range(options.rounds):
        stock, ours = measure(options.tasks, is_stock=True), measure(options.tasks, is_stock=False)
        published.append(ours.published / stock.published)
        worked_off.append(ours.worked_off / stock.worked_off)
        print(
            f"round {turn + 1}: published/s {stock.published:.0f} stock, {ours.published:.0f} ours"
            f" ({published[-1]:.2f}); worked off/s {stock.worked_off:.0f} stock, "
            f"{ours.worked_off:.0f} ours ({worked_off[-1]:.2f}); commands a task "
            f"{stock.commands:.1f} stock, {ours.commands:.1f} ours",
            flush=True,
        )
    print(
        f"median ratio to stock: published {statistics.median(published):.2f}, "
        f"worked off {statistics.median(worked_off):.2f}"
    )


def measure(tasks: int, *, is_stock: bool) -> Rates:
    """Publish the tasks, then let one worker work them off."""
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
        environ = {
            **os.environ,
            "BROKER_URL": server.url(0),
            "RESULT_URL": server.url(1),
            "PYTHONPATH": str(REPOSITORY),
            "STOCK": "yes" if is_stock else "",
        }
        code = (
            "import time; from benchmarks.app import publish; begun = time.perf_counter(); "
            f"publish({tasks}); print(time.perf_counter() - begun)"
        )
        printed = subprocess.run(
            [sys.executable, "-c", code], env=environ, check=True, capture_output=True, text=True
        ).stdout
        published = tasks / float(printed)
        client = server.client()
        client.config_resetstat()
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "benchmarks.app", "worker", *WORKER_OPTIONS],
            env=environ,
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for(lambda: client.llen("celery") <= tasks - _EDGE, 60, "the worker works")
            started = time.perf_counter()
            wait_for(lambda: client.llen("celery") <= _EDGE, 600, "the queue is worked off")
            seconds = time.perf_counter() - started
            calls = sum(one["calls"] for one in client.info("commandstats").values())
        finally:
            os.killpg(worker.pid, signal.SIGTERM)
            worker.wait()
    return Rates(published, (tasks - 2 * _EDGE) / seconds, calls / tasks)


if __name__ == "__main__":
    main()
