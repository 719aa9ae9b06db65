"""What an operator waits for, however many tasks there are.

`python -m benchmarks.desk [--tasks N ...] [--rounds N]` starts a Redis of its own, fills it with so
many queued tasks, and times what the desk asks: the status, a page of tasks, a page with a filter
that fits nothing, the last page, and one task in the middle.  Each figure is the median of the
rounds, in ms; beside it stands its ratio to the smallest number of tasks.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from celery import Celery

from benchmarks.backlog import Backlog
from celery_reliable import ReliableTask
from celery_reliable.operations import Desk, Filter, Kind
from tests.support.redis_server import RedisServer

_QUEUE = "celery"
_FAR_MS = 24 * 60 * 60 * 1000


def _work() -> None:
    """Nobody runs it."""


def _looks(desk: Desk, task_id: str) -> dict[str, Callable[[], object]]:
    """What is timed, by its name."""
    middle = desk.tasks.page(limit=1).cursor
    nothing = Filter(task="no.such.task")
    return {
        "status": desk.status,
        "page of 50": lambda: desk.tasks.page(limit=50),
        "page that fits nothing": lambda: desk.tasks.page(nothing, limit=50),
        "page of waiting": lambda: desk.tasks.page(state=Kind.WAITING, limit=50),
        "next page": lambda: desk.tasks.page(cursor=middle, limit=50),
        "objects": lambda: desk.objects.page(limit=50),
        "workers": desk.workers.all,
        "one task": lambda: desk.tasks.get(task_id),
    }


def measure(tasks: int, rounds: int) -> dict[str, float]:
    """Return the medians, in ms, among so many tasks."""
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder), {"appendonly": "no"}) as server,
    ):
        app = Celery("desk", broker=server.url(), set_as_current=False)
        app.task(_work, name="desk.work", base=ReliableTask, shared=False, ignore_result=True)
        app.finalize()
        backlog = Backlog(app, app.tasks["desk.work"], server)
        try:
            ids = backlog.add(_QUEUE, tasks, due_in_ms=_FAR_MS)
            with Desk(app) as desk:
                looks = _looks(desk, ids[len(ids) // 2])
                return {name: _median_ms(look, rounds) for name, look in looks.items()}
        finally:
            backlog.close()
            app.close()


def _median_ms(look: Callable[[], object], rounds: int) -> float:
    look()
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        look()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.desk", description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    found = {count: measure(count, given.rounds) for count in sorted(given.tasks)}
    least = found[min(found)]
    print(f"{'ms among so many tasks':24}" + "".join(f"{count:>18,}" for count in found))
    for name in least:
        cells = (f"{row[name]:8.1f} ({row[name] / least[name]:4.1f} x)" for row in found.values())
        print(f"{name:24}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
