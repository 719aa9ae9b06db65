"""The process that publishes: reads a request a line, as JSON, and answers each with a line."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, repeat
from typing import Any

import redis
from celery import group

from benchmarks.server import ServerCounts

__all__ = ["main"]

#: Until the worker is idle again after a task's result has come.
_PAUSE_SECONDS = 0.02
_RESULT_SECONDS = 60.0


@contextmanager
def _no_garbage_collected() -> Iterator[None]:
    """Keep what is sent at a rate from being held up by this process itself.

    It has every result until the end, which no caller does. To look at all of them for garbage
    takes dozens of milliseconds, and these would count as the worker's.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Producer:
    """Publishes the contender's tasks, no two with the same number."""

    def __init__(self) -> None:
        from benchmarks.app import hold, noop, short

        self._tasks: dict[str, Any] = {"noop": noop, "short": short, "hold": hold}
        self._client = redis.Redis.from_url(os.environ["BROKER_URL"])
        self._number = 0

    def begin_at(self, *, number: int) -> dict[str, Any]:
        """Give numbers from this one on: no two producers give the same."""
        self._number = number
        return {}

    def publish(
        self,
        *,
        count: int,
        size: int,
        task: str = "noop",
        countdown_seconds: float | None = None,
        queues: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Publish so many, one after the other, to each of the queues in turn, and tell what that
        took.
        """
        send = self._tasks[task].apply_async
        body = "x" * size
        to = cycle({"queue": queue} for queue in queues) if queues else repeat({})
        before = ServerCounts.now(self._client)
        cpu_began, began = time.process_time(), time.perf_counter()
        for number in range(self._number, self._number + count):
            send((number, body), countdown=countdown_seconds, **next(to))
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        self._number += count
        counted = ServerCounts.now(self._client).since(before)
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "redis_seconds": counted.cpu_seconds,
            "trips": counted.trips,
            "commands": counted.commands,
        }

    def in_a_group(self, *, count: int, size: int) -> dict[str, Any]:
        """Publish so many as one group, and tell what that took."""
        noop, body = self._tasks["noop"], "x" * size
        members = group(noop.s(self._next(), body) for _ in range(count))
        began = time.perf_counter()
        members.apply_async()
        return {"seconds": time.perf_counter() - began}

    def from_threads(self, *, count: int, threads: int, size: int) -> dict[str, Any]:
        """Publish so many from a pool of threads, and tell what that took."""
        noop, body = self._tasks["noop"], "x" * size
        arguments = [(self._next(), body) for _ in range(count)]
        with ThreadPoolExecutor(threads) as pool:
            # Each has its connections by then.
            list(pool.map(noop.apply_async, arguments[: 4 * threads]))
            began = time.perf_counter()
            list(pool.map(noop.apply_async, arguments[4 * threads :]))
        seconds = time.perf_counter() - began
        return {"seconds": seconds * count / max(1, count - 4 * threads)}

    def one_at_a_time(self, *, count: int, size: int, countdown: float = 0.0) -> dict[str, Any]:
        """Publish each when the one before has its result; seconds from the call to the start, or
        from the end of its *countdown*, in seconds.
        """
        seconds = []
        for _ in range(count):
            due_at = time.monotonic() + countdown
            sent = self._send(size, countdown=countdown or None)
            seconds.append(sent.get(timeout=_RESULT_SECONDS) - due_at)
            time.sleep(_PAUSE_SECONDS)
        return {"latencies_seconds": seconds}

    def steadily(self, *, per_second: float, seconds: float, size: int) -> dict[str, Any]:
        """Publish at a steady rate; seconds from each call to its start."""
        sent = []
        with _no_garbage_collected():
            began = time.monotonic()
            for turn in range(max(1, round(per_second * seconds))):
                time.sleep(max(0.0, began + turn / per_second - time.monotonic()))
                sent.append((time.monotonic(), self._send(size)))
            lasted = time.monotonic() - began
        latencies = [result.get(timeout=_RESULT_SECONDS) - called for called, result in sent]
        return {"latencies_seconds": latencies, "reached_per_second": len(sent) / lasted}

    def at_random(
        self, *, per_second: float, seconds: float, size: int, seed: int
    ) -> dict[str, Any]:
        """Publish as callers do that know nothing of each other (Poisson's arrivals); seconds from
        the moment at which each was to be published to its start.
        """
        chance, due, sent = random.Random(seed), 0.0, []
        with _no_garbage_collected():
            began = time.monotonic()
            while (due := due + chance.expovariate(per_second)) < seconds:
                # Not from the call: what held up the one before holds up this one too.
                time.sleep(max(0.0, began + due - time.monotonic()))
                sent.append((began + due, self._send(size)))
            lasted = time.monotonic() - began
        latencies = [result.get(timeout=_RESULT_SECONDS) - was_due for was_due, result in sent]
        return {"latencies_seconds": latencies, "reached_per_second": len(sent) / lasted}

    def _send(self, size: int, **options: Any) -> Any:
        return self._tasks["noop"].apply_async((self._next(), "x" * size), **options)

    def _next(self) -> int:
        self._number += 1
        return self._number


def main() -> None:
    """Answer requests until there are no more."""
    producer = Producer()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(producer, request.pop("verb"))(**request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
