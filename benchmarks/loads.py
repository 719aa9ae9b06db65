"""The loads where users live, each beside stock Celery: contenders take turns within each round.

A ratio is that of two turns of one round, one after the other; what is told is the median of the
rounds' ratios, with the least and the greatest.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.contenders import BASELINE, Contender
from benchmarks.figures import Row, Table, percentile, spread
from benchmarks.measures import drain
from benchmarks.rig import Producer, Rig

__all__ = ["LOADS", "Load", "print_loads", "take_turns"]

#: Of the numbers that each producer gives.
_NUMBERS = 1_000_000
_STEADY = "steady"


@dataclass(frozen=True)
class Load:
    """What is published, by how many, to how many queues, and which worker works it off."""

    name: str
    told: str
    task: str = "noop"
    body_bytes: int = 1_000
    pool: str = "prefork"
    concurrency: int = 2
    producers: int = 1
    queues: int = 1
    #: Of the tasks that are asked for, so that each load takes about as long.
    share: float = 1.0

    @property
    def queue_names(self) -> list[str]:
        """The queues of which each gets as many; none for Celery's own."""
        return [f"load-{n}" for n in range(self.queues)] if self.queues > 1 else []

    @property
    def has_its_pool(self) -> bool:
        """Whether what its pool needs is installed."""
        return self.pool in ("prefork", "threads") or find_spec(self.pool) is not None


_ALL = (
    Load("noop", "tasks that do nothing, 1 kB, two processes"),
    Load("five-ms", "tasks that wait for 5 ms, 1 kB, eight processes", "short", concurrency=8),
    Load("ten-kb", "tasks that do nothing, 10 kB, two processes", body_bytes=10_000, share=0.5),
    Load("many", "four producers at once, five queues, 1 kB", producers=4, queues=5),
    Load("threads", "tasks that do nothing, eight threads", pool="threads", concurrency=8),
    Load("gevent", "tasks that do nothing, 50 greenlets", pool="gevent", concurrency=50),
    Load(_STEADY, "Poisson's arrivals at half of what stock works off at most, 1 kB"),
)
#: By name, in the order in which they are measured.
LOADS: dict[str, Load] = {one.name: one for one in _ALL}


def take_turns(
    rig: Rig,
    loads: Sequence[Load],
    contenders: Sequence[Contender],
    *,
    rounds: int,
    tasks: int,
    steady_seconds: float,
) -> list[Row]:
    """Measure each load with each contender in each round.  *tasks* are published a turn, and for
    *steady_seconds* by the load that is steady.  The order of the contenders changes from round to
    round: a machine may grow slower.
    """
    rows, per_second = [], 0.0
    for turn in range(1, rounds + 1):
        for load in (one for one in loads if one.has_its_pool):
            for contender in contenders if turn % 2 else contenders[::-1]:
                if load.name == _STEADY:
                    # What stock does at most, told once: the same rate for all, in all rounds.
                    per_second = per_second or _saturation(rig, contenders, tasks) / 2
                    found = _steady(rig, load, contender, per_second, steady_seconds, seed=turn)
                else:
                    found = _work_off(rig, load, contender, max(20, int(tasks * load.share)))
                found["load_average"] = os.getloadavg()[0]
                row = {f"{load.name}_{name}": value for name, value in found.items()}
                rows.append(Row(turn, contender.name, row))
                print(f"round {turn} of {rounds}: {load.name}: {contender.name}", flush=True)
    return rows


def _saturation(rig: Rig, contenders: Sequence[Contender], tasks: int) -> float:
    stock = next((one for one in contenders if one.name == BASELINE), contenders[0])
    return _work_off(rig, LOADS["noop"], stock, tasks)["drain_per_second"]


def _work_off(rig: Rig, load: Load, contender: Contender, tasks: int) -> dict[str, float]:
    """Publish, then start a worker and let it work off what is there."""
    rig.reset()
    each = max(1, tasks // load.producers)
    warm = max(5, each // 10)
    with ExitStack() as stack:
        producers = [stack.enter_context(rig.producer(contender)) for _ in range(load.producers)]
        for n, producer in enumerate(producers):
            producer.ask("begin_at", number=n * _NUMBERS)
        _publish(producers, load, warm)
        figures = _publish(producers, load, each)
        published = (warm + each) * load.producers
        worker = stack.enter_context(
            rig.worker(
                contender,
                pool=load.pool,
                concurrency=load.concurrency,
                queues=load.queue_names,
            )
        )
        figures.update(drain(rig, worker, published, each * load.producers).figures())
    return figures


def _publish(producers: Sequence[Producer], load: Load, each: int) -> dict[str, float]:
    """Have all of them publish at once, and tell how fast, and what a task costs them."""

    def publish(producer: Producer) -> dict[str, float]:
        return producer.ask(
            "publish",
            count=each,
            size=load.body_bytes,
            task=load.task,
            queues=load.queue_names,
        )

    with ThreadPoolExecutor(len(producers)) as pool:
        told = list(pool.map(publish, producers))
    figures = {
        "enqueue_per_second": sum(each / one["seconds"] for one in told),
        "enqueue_cpu_us": statistics.mean(one["cpu_seconds"] for one in told) / each * 1e6,
    }
    if len(producers) == 1:
        # Of several, each would count what the others do.
        figures["enqueue_trips"] = told[0]["trips"] / each
        figures["enqueue_redis_us"] = told[0]["redis_seconds"] / each * 1e6
    return figures


def _steady(
    rig: Rig, load: Load, contender: Contender, per_second: float, seconds: float, *, seed: int
) -> dict[str, float]:
    rig.reset()
    with rig.producer(contender) as producer, rig.worker(contender) as worker:
        # Connections, and what a worker does once.
        producer.ask("one_at_a_time", count=20, size=load.body_bytes)
        before = rig.look(worker)
        told = producer.ask(
            "at_random", per_second=per_second, seconds=seconds, size=load.body_bytes, seed=seed
        )
        after = rig.look(worker)
    latencies = told["latencies_seconds"]
    count = len(latencies)
    redis_seconds = after.counts.since(before.counts).cpu_seconds
    return {
        **{
            f"p{str(percent).replace('.', '')}_ms": percentile(latencies, percent) * 1000
            for percent in (50, 99, 99.9)
        },
        "main_cpu_us": (after.main_seconds - before.main_seconds) / count * 1e6,
        "children_cpu_us": (after.children_seconds - before.children_seconds) / count * 1e6,
        # The publishing is part of it.
        "redis_us": redis_seconds / count * 1e6,
        "per_second": told["reached_per_second"],
    }


#: What the report of a load shows.
_SHOWN = (
    "enqueue_per_second",
    "enqueue_trips",
    "enqueue_redis_us",
    "drain_per_second",
    "main_cpu_us",
    "children_cpu_us",
    "drain_redis_us",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "redis_us",
)


def print_loads(rows: Sequence[Row], loads: Sequence[Load], names: Sequence[str]) -> None:
    """Print for each load what stock has, and what the others have beside it."""
    table = Table(rows)
    for load in loads:
        print(f"\n{load.name}: {load.told}")
        for figure in (f"{load.name}_{shown}" for shown in _SHOWN):
            stock = table.median(figure, BASELINE)
            if stock is None:
                continue
            others = [
                f"{name} x{spread(table.ratios(figure, name, BASELINE))}"
                for name in names
                if name != BASELINE and table.ratios(figure, name, BASELINE)
            ]
            shown = figure.removeprefix(f"{load.name}_")
            print(f"  {shown:<20} {BASELINE} {stock:10.2f}   {', '.join(others)}")
