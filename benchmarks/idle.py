"""How soon a task begins on an idle worker: all contenders are up at once and take turns, one task
each, so that a machine that grows slower or faster does so for all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.contenders import Contender
from benchmarks.figures import percentile_99
from benchmarks.measures import BODY_BYTES, Scale
from benchmarks.rig import Producer, Rig
from tests.support.redis_server import RedisServer

__all__ = ["time_idle"]

_COUNTDOWN_SECONDS = 0.05
#: Turns before any is timed: connections, and what a process does once in its life, such as the
#: imports of a worker's first pass some seconds after its start.
_WARM_TURNS = 100


def time_idle(
    contenders: Sequence[Contender], scale: Scale, server_options: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return, by contender, the median and the 99th percentile from the call to the start, and from
    an ETA to the start.

    Each has a server of its own, so that nobody's queue is another's.
    """
    seconds: dict[str, list[float]] = {one.name: [] for one in contenders}
    late: dict[str, list[float]] = {one.name: [] for one in contenders}
    with ExitStack() as stack:
        producers = {one.name: _producer(stack, one, server_options) for one in contenders}
        for turn in range(_WARM_TURNS + scale.idle_tasks):
            for name, producer in producers.items():
                told = producer.ask("one_at_a_time", count=1, size=BODY_BYTES)
                if turn >= _WARM_TURNS:
                    seconds[name] += told["latencies_seconds"]
                    told = producer.ask(
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


def _producer(
    stack: ExitStack, contender: Contender, server_options: Mapping[str, str]
) -> Producer:
    folder = Path(stack.enter_context(TemporaryDirectory()))
    rig = Rig(stack.enter_context(RedisServer(folder, server_options)), folder)
    producer = stack.enter_context(rig.producer(contender))
    stack.enter_context(rig.worker(contender))
    return producer
