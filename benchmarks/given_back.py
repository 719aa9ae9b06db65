"""What it costs that workers give back what they cannot begin: how fast they work off a full queue.

`python -m benchmarks.given_back [--rounds N] [--tasks N] [--naps N] [--json FILE]` lets the same
workers take turns with and without GIVE_BACK_SECONDS, on one Redis: one of two processes with tasks
that do nothing, and two of one process each with tasks of which some take long, so that some go
back.  The first and the last tenth are not counted.  Who begins changes from round to round; the
ratio is the median of the rounds' own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contenders import ASIDE, CONTENDERS, Contender
from benchmarks.figures import Row, Table
from benchmarks.rig import Rig
from celery_reliable.broker.unacked import script
from tests.support.redis_server import RedisServer

_ON, _OFF = CONTENDERS["reliable"], ASIDE["reliable-keeping"]
_BODY_BYTES = 100
_RATE, _WENT_BACK = "drain_per_second", "went_back"


@dataclass(frozen=True)
class Work:
    """What is worked off, and by how many workers of how many processes each."""

    task: str
    count: int
    workers: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.count} times {self.task}, {self.workers} x {self.concurrency} processes"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=5_000, help="that do nothing")
    # Of fewer it is chance which of them run at the edges of what is counted.
    parser.add_argument("--naps", type=int, default=200, help="of which some take long")
    parser.add_argument("--json", type=Path, help="a file for the figures of every round")
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    found: dict[str, list[Row]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        RedisServer(Path(folder), {"auto-aof-rewrite-percentage": "0"}) as server,
    ):
        rig = Rig(server, Path(folder))
        for work in (Work("noop", options.tasks, 1, 2), Work("nap", options.naps, 2, 1)):
            rows = found[str(work)] = _take_turns(rig, work, options.rounds)
            _print(work, Table(rows))
    if options.json:
        told = {
            work: [{"round": row.turn, "contender": row.contender, **row.figures} for row in rows]
            for work, rows in found.items()
        }
        options.json.write_text(json.dumps(told, indent=2))


def _take_turns(rig: Rig, work: Work, rounds: int) -> list[Row]:
    rows = []
    for turn in range(1, rounds + 1):
        for contender in (_ON, _OFF) if turn % 2 else (_OFF, _ON):
            load = os.getloadavg()[0]
            rate, went_back = _work_off(rig, work, contender)
            rows.append(
                Row(
                    turn,
                    contender.name,
                    {_RATE: rate, _WENT_BACK: float(went_back), "load_average": load},
                )
            )
            print(f"  round {turn}: {contender.name:<16} {rate:8.2f} a second, load {load:.1f}")
    return rows


def _work_off(rig: Rig, work: Work, contender: Contender) -> tuple[float, bool]:
    """Return how many tasks a second are worked off, and whether any was given back."""
    rig.reset()
    rig.client.script_flush()
    edge = work.count // 10
    with rig.producer(contender) as producer, ExitStack() as stack:
        producer.ask("publish", task=work.task, count=work.count, size=_BODY_BYTES)
        for _ in range(work.workers):
            stack.enter_context(rig.worker(contender, concurrency=work.concurrency))
        began = _when(rig, edge)
        ended = _when(rig, work.count - edge)
        rig.wait_for_results(work.count)
    went_back = rig.client.script_exists(script("requeue").sha) == [True]
    return (ended[1] - began[1]) / (ended[0] - began[0]), went_back


def _when(rig: Rig, count: int) -> tuple[float, int]:
    """Return when there are as many results, and how many there are then."""
    rig.wait_for_results(count)
    return time.perf_counter(), rig.results()


def _print(work: Work, table: Table) -> None:
    print(work)
    for contender in (_ON, _OFF):
        went_back = sum(table.values(_WENT_BACK, contender.name))
        rates = table.values(_RATE, contender.name)
        print(
            f"  {contender.name:<16} {_spread(rates)} a second; "
            f"in {went_back:.0f} of {len(rates)} rounds some went back"
        )
    pairs = zip(table.values(_RATE, _ON.name), table.values(_RATE, _OFF.name), strict=True)
    print(f"  ratio            {_spread([on / off for on, off in pairs])}", flush=True)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
