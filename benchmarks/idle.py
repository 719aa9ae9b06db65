"""How soon a task begins on an idle worker, and what that worker asks of its server meanwhile.

All contenders are up at once and take turns, one task each, so that a machine that grows slower or
faster does so for all of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contenders import Contender
from benchmarks.figures import percentile_99
from benchmarks.measures import BODY_BYTES, Scale
from benchmarks.rig import Producer, Rig
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer

__all__ = ["measure_idle"]

_COUNTDOWN_SECONDS = 0.05
#: Turns before any is timed: connections, and what a process does once in its life, such as the
#: imports of a worker's first pass some seconds after its start.
_WARM_TURNS = 100
#: After the last task a process still looks for more, for about a second.
_CALM_SECONDS = 3.0


@dataclass(frozen=True)
class _Standing:
    """A contender with a server, a producer and a worker of its own."""

    rig: Rig
    producer: Producer
    worker: Worker


def measure_idle(
    contenders: Sequence[Contender], scale: Scale, server_options: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return the figures of each contender by its name.

    Each contender has a server of its own, so that no queue, command or connection is another's.
    """
    with ExitStack() as stack:
        standing = {one.name: _stand(stack, one, server_options) for one in contenders}
        timed = _time(standing, scale.idle_tasks)
        time.sleep(_CALM_SECONDS)
        counted = _count(standing, scale.idle_seconds)
    return {name: {**timed[name], **counted[name]} for name in standing}


def _time(standing: Mapping[str, _Standing], tasks: int) -> dict[str, dict[str, float]]:
    """Return the median and the 99th percentile from the call to the start, and from an ETA to the
    start.
    """
    seconds: dict[str, list[float]] = {name: [] for name in standing}
    late: dict[str, list[float]] = {name: [] for name in standing}
    for turn in range(_WARM_TURNS + tasks):
        for name, one in standing.items():
            told = one.producer.ask("one_at_a_time", count=1, size=BODY_BYTES)
            if turn >= _WARM_TURNS:
                seconds[name] += told["latencies_seconds"]
                told = one.producer.ask(
                    "one_at_a_time", count=1, size=BODY_BYTES, countdown=_COUNTDOWN_SECONDS
                )
                late[name] += told["latencies_seconds"]
    return {
        name: {
            "idle_p50_ms": statistics.median(found) * 1000,
            "idle_p99_ms": percentile_99(found) * 1000,
            "eta_p50_ms": statistics.median(late[name]) * 1000,
            "eta_p99_ms": percentile_99(late[name]) * 1000,
        }
        for name, found in seconds.items()
    }


def _count(standing: Mapping[str, _Standing], seconds: float) -> dict[str, dict[str, float]]:
    """Return what the workers send to their servers while no task comes, and how many connections
    they have.

    Commands are those that the server executes, in scripts too.
    """
    before = {name: one.rig.look(one.worker) for name, one in standing.items()}
    time.sleep(seconds)
    figures = {}
    for name, one in standing.items():
        after = one.rig.look(one.worker)
        counts = after.counts.since(before[name].counts)
        lasted = after.at_seconds - before[name].at_seconds
        figures[name] = {
            "idle_commands_per_second": counts.commands / lasted,
            "idle_trips_per_second": counts.trips / lasted,
            "connections": float(one.rig.count_connections(one.worker)),
        }
    return figures


def _stand(stack: ExitStack, contender: Contender, server_options: Mapping[str, str]) -> _Standing:
    folder = Path(stack.enter_context(TemporaryDirectory()))
    rig = Rig(stack.enter_context(RedisServer(folder, server_options)), folder)
    producer = stack.enter_context(rig.producer(contender))
    return _Standing(rig, producer, stack.enter_context(rig.worker(contender)))
