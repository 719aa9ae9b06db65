"""What is measured of one contender, each as figures by name; a name ends in its unit."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import psutil

from benchmarks.contenders import Contender
from benchmarks.figures import percentile_99
from benchmarks.rig import WORK_SECONDS, Producer, Rig, Sight
from benchmarks.server import BROKER_DB, LOCK_DB, RESULT_DB
from tests.support.processes import Worker
from tests.support.waiting import wait_for

__all__ = [
    "BODY_BYTES",
    "FULL",
    "SHORT",
    "Scale",
    "count_bytes",
    "count_scripted",
    "drain",
    "time_tasks",
]

#: What is timed has bodies of this size.
BODY_BYTES = 100
_PARKED_SECONDS = 3600.0
#: Of the pool that publishes a burst.
_THREADS = 8
#: As many are queued and waiting while the bytes of one are counted.
_WAITING = 300
#: What is not gone by then counts as left.
_SETTLE_SECONDS = 5.0


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rounds: int
    tasks: int
    #: Published in a group, and as many from a pool of threads.
    burst_tasks: int
    #: Published one at a time, when the worker is idle again.
    idle_tasks: int
    #: How long the commands of idle workers are counted.
    idle_seconds: float
    #: How long half the drain rate is published.
    load_seconds: float
    #: How long a load of users' is steady.
    steady_seconds: float
    #: The sizes with which bytes are counted.
    bodies: tuple[int, ...]
    #: How many run at once while they are.
    running_tasks: int


#: Whether all of it works, in a minute and a half.
SHORT = Scale(
    rounds=1,
    tasks=300,
    burst_tasks=200,
    idle_tasks=50,
    idle_seconds=6.0,
    load_seconds=0.5,
    steady_seconds=0.5,
    bodies=(1_000,),
    running_tasks=16,
)
FULL = Scale(
    rounds=5,
    tasks=5_000,
    burst_tasks=10_000,
    idle_tasks=300,
    idle_seconds=30.0,
    load_seconds=5.0,
    steady_seconds=20.0,
    bodies=(100, 1_000, 10_000),
    running_tasks=64,
)


def time_tasks(rig: Rig, contender: Contender, scale: Scale) -> dict[str, float]:
    """Publish in bursts, then one by one, start a worker, let it work off the latter, then see how
    soon a task begins while half as much comes.
    """
    rig.reset()
    with rig.producer(contender) as producer:
        bursts = _burst(producer, scale.burst_tasks)
        rig.reset()
        figures, published = _publish(producer, scale.tasks)
        figures.update(bursts)
        with rig.worker(contender) as worker:
            window = drain(rig, worker, published, scale.tasks)
            figures.update(window.figures())
            figures["life_trips"] = figures["enqueue_trips"] + figures["drain_trips"]
            figures["life_redis_us"] = figures["enqueue_redis_us"] + figures["drain_redis_us"]
            figures.update(_resident(worker))
            half = figures["drain_per_second"] / 2
            load = producer.ask(
                "steadily", per_second=half, seconds=scale.load_seconds, size=BODY_BYTES
            )
            latencies = load["latencies_seconds"]
            figures["load_p50_ms"] = statistics.median(latencies) * 1000
            figures["load_p99_ms"] = percentile_99(latencies) * 1000
            figures["load_per_second"] = load["reached_per_second"]
    return figures


def _burst(producer: Producer, tasks: int) -> dict[str, float]:
    """Return how many tasks a second are published in a group, and from a pool of threads."""
    told = {
        "group": producer.ask("in_a_group", count=tasks, size=BODY_BYTES),
        "threads": producer.ask("from_threads", count=tasks, threads=_THREADS, size=BODY_BYTES),
    }
    return {f"{how}_per_second": tasks / one["seconds"] for how, one in told.items()}


def _publish(producer: Producer, tasks: int) -> tuple[dict[str, float], int]:
    """Return what a task costs to publish, and how many were published, the first included."""
    warm = max(20, tasks // 10)
    producer.ask("publish", count=warm, size=BODY_BYTES)
    told = producer.ask("publish", count=tasks, size=BODY_BYTES)
    figures = {
        "enqueue_per_second": tasks / told["seconds"],
        "enqueue_cpu_us": told["cpu_seconds"] / tasks * 1e6,
        "enqueue_redis_us": told["redis_seconds"] / tasks * 1e6,
        "enqueue_trips": told["trips"] / tasks,
        "enqueue_commands": told["commands"] / tasks,
    }
    return figures, warm + tasks


@dataclass(frozen=True)
class Window:
    """What a worker did between two looks."""

    before: Sight
    after: Sight
    polls: int

    def figures(self) -> dict[str, float]:
        """Return what a task costs to work off."""
        before, after = self.before, self.after
        counts = after.counts.since(before.counts, polls=self.polls)
        tasks, seconds = counts.results, after.at_seconds - before.at_seconds
        main = after.main_seconds - before.main_seconds
        children = after.children_seconds - before.children_seconds
        own = main + children + counts.cpu_seconds
        if not tasks:
            raise RuntimeError("All was done before the worker was looked at: give it more tasks.")
        return {
            "drain_per_second": tasks / seconds,
            "main_cpu_us": main / tasks * 1e6,
            "children_cpu_us": children / tasks * 1e6,
            "drain_redis_us": counts.cpu_seconds / tasks * 1e6,
            "drain_trips": counts.trips / tasks,
            "drain_commands": counts.commands / tasks,
            "foreign_cores": (after.machine_seconds - before.machine_seconds - own) / seconds,
        }


def drain(rig: Rig, worker: Worker, published: int, tasks: int) -> Window:
    """Have the worker work off all that was published, and look at it in the middle: neither when
    its processes begin nor when there is too little for both.
    """
    edge = tasks // 10
    rig.wait_for_results(edge)
    rig.forget_polls()
    before = rig.look(worker)
    rig.wait_for_results(published - edge)
    after, polls = rig.look(worker), rig.forget_polls()
    rig.wait_for_results(published)
    return Window(before, after, polls)


def _resident(worker: Worker) -> dict[str, float]:
    main, *children = (
        psutil.Process(pid).memory_info().rss / 1e6 for pid in (worker.pid, *worker.children())
    )
    return {"main_rss_mb": main, "child_rss_mb": statistics.mean(children)}


def count_bytes(rig: Rig, contender: Contender, scale: Scale) -> dict[str, float]:
    """Count what the server keeps of a task that runs, has ended, is queued, or waits for its ETA.

    Nothing is timed, and the worker's pool is of threads, so that many tasks run at once.
    """
    rig.reset()
    figures: dict[str, float] = {}
    count = scale.running_tasks
    with rig.producer(contender) as producer:
        with rig.worker(contender, pool="threads", concurrency=count):
            # The first makes what is there once, such as a queue's binding.
            _run_and_end(rig, producer, count, scale.bodies[0])
            for size in scale.bodies:
                figures.update(_run_and_end(rig, producer, count, size))
        for state, countdown in (("queued", None), ("waiting", _PARKED_SECONDS)):
            figures.update(_wait_in_redis(rig, producer, scale, state, countdown))
    return figures


def _wait_in_redis(
    rig: Rig, producer: Producer, scale: Scale, state: str, countdown_seconds: float | None
) -> dict[str, float]:
    figures = {}
    # The first only makes indexes long: Redis keeps those of few tasks in another, smaller form.
    for size in (scale.bodies[0], *scale.bodies):
        before = rig.held_bytes(BROKER_DB, LOCK_DB)
        producer.ask("publish", count=_WAITING, size=size, countdown_seconds=countdown_seconds)
        grown = rig.held_bytes(BROKER_DB, LOCK_DB) - before
        figures[f"{state}_{size}_bytes"] = grown / _WAITING
    return figures


def _run_and_end(rig: Rig, producer: Producer, count: int, size: int) -> dict[str, float]:
    before, results_before = rig.held_bytes(BROKER_DB, LOCK_DB), rig.held_bytes(RESULT_DB)
    ended = rig.results()
    producer.ask("publish", task="hold", count=count, size=size)
    wait_for(lambda: len(rig.held_tasks()) == count, WORK_SECONDS, f"{count} tasks to run at once")
    running = rig.held_bytes(BROKER_DB, LOCK_DB) - before
    for path in rig.held_tasks():
        path.unlink()
    rig.wait_for_results(ended + count)
    return {
        f"running_{size}_bytes": running / count,
        f"settled_{size}_bytes": _left(rig, before, count) / count,
        f"result_{size}_bytes": (rig.held_bytes(RESULT_DB) - results_before) / count,
    }


def _left(rig: Rig, before: int, count: int) -> int:
    """Return what is left of tasks that have a result, once that is nothing, or stays."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        left = rig.held_bytes(BROKER_DB, LOCK_DB) - before
        # A number that a worker counts has one digit more, some time.
        if left < count or time.monotonic() > deadline:
            return left if left >= count else 0


def count_scripted(rig: Rig, contender: Contender, scale: Scale) -> dict[str, float]:
    """Count the commands inside scripts over a task's life, what idle workers do among them."""
    rig.reset()
    with rig.producer(contender) as producer, rig.worker(contender):
        with rig.scripted_commands() as found:
            producer.ask("publish", count=scale.tasks, size=BODY_BYTES)
            rig.wait_for_results(scale.tasks)
        return {"life_scripted_commands": len(found) / scale.tasks}
