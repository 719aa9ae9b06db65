"""What a replay costs the other tasks of its worker, and whether it is exact when it is killed.

`python -m benchmarks.beside [--letters N] [--rate N] [--busy-ms N ...]` starts a
Redis and a worker of two processes.  While nothing else happens, and then while the command line
replays so many dead letters at that rate, a short task is published ten times a second to the queue
of the letters, and one to another queue of the worker; their waits, from publication to start, are
compared.  In the middle the replay is killed, and run again; each letter has to run once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import redis
from celery import Celery

from benchmarks.letters import fill
from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.operations import Desk
from tests.support.redis_server import RedisServer

_BROKER = "BESIDE_BROKER"
_OTHER = "other"
_QUIET_SECONDS = 10.0
_EVERY_SECONDS = 0.1
_NAME = "beside.letter"


@dataclass(frozen=True)
class Waits:
    """How long short tasks waited, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, seconds: list[float]) -> Waits:
        """Return the figures of some waits."""
        ms = sorted(1000 * one for one in seconds)
        return cls(
            len(ms), round(statistics.median(ms), 1), round(ms[int(0.99 * (len(ms) - 1))], 1)
        )


@dataclass(frozen=True)
class Beside:
    """One replay, and the waits of others by their queue: without it and beside it."""

    busy_ms: float
    #: What the command was told.
    how: str
    quiet: dict[str, Waits]
    beside: dict[str, Waits]
    replayed: int
    real_rate: float
    #: How many letters ran once, and how many oftener.
    runs: dict[int, int]


def create_app(url: str) -> Celery:
    """The app of the worker and of the command line."""
    app = Celery("beside", broker=url, backend=f"{url[:-1]}1", set_as_current=False)
    app.conf.broker_connection_retry_on_startup = True
    app.conf.task_ignore_result = True
    own = redis.Redis.from_url(f"{url[:-1]}2")

    def letter(self: Any, number: int, busy_ms: float) -> None:
        time.sleep(busy_ms / 1000)
        own.hincrby("letters", str(number))

    def short(self: Any, queue: str, phase: str, sent: float) -> None:
        # One machine, one clock.
        own.rpush(f"waits:{phase}:{queue}", str(time.time() - sent))

    for name, body in ((_NAME, letter), ("beside.short", short)):
        app.task(body, bind=True, base=ReliableTask, name=name, shared=False)
    return app


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--letters", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--busy-ms", type=float, nargs="+", default=[0, 10])
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    logging.getLogger("celery_reliable").setLevel(logging.ERROR)
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    found = []
    for busy_ms in options.busy_ms:
        with (
            tempfile.TemporaryDirectory() as folder,
            RedisServer(Path(folder), {"appendonly": "no", "save": ""}) as server,
        ):
            words = ["--rate", f"{options.rate:g}"]
            found.append(_measure(server, Path(folder), options.letters, words, busy_ms))
        _print(found[-1])
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=2))


def _measure(
    server: RedisServer, folder: Path, letters: int, how: Sequence[str], busy_ms: float
) -> Beside:
    app = create_app(server.url())
    own = server.client(2)
    environ = {**os.environ, _BROKER: server.url()}
    words = ("worker", "-c", "2", "-Q", f"celery,{_OTHER}", "--without-mingle", "--without-gossip")
    with Desk(app, patience_seconds=60) as desk, (folder / "worker.log").open("w") as log:
        fill(desk, server.client(), letters, _letter_that_takes(busy_ms))
        worker = subprocess.Popen(_command(*words), env=environ, stdout=log, stderr=log)
        try:
            _until(lambda: bool(desk.workers.all()))
            _publish_while(app, "warm", lambda elapsed: elapsed < 3)
            _publish_while(app, "quiet", lambda elapsed: elapsed < _QUIET_SECONDS)
            rates = _replay(app, desk, environ, letters, how)
            _until(lambda: sum(map(int, own.hvals("letters"))) >= letters)
            # What would run a second time does so now.
            _publish_while(app, "after", lambda elapsed: elapsed < 2)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        runs = Counter(map(int, own.hvals("letters")))
    found = {
        phase: {queue: _waits(own, phase, queue) for queue in ("celery", _OTHER)}
        for phase in ("quiet", "beside")
    }
    own.close()
    reliable_of(app).close()
    app.close()
    return Beside(
        busy_ms,
        " ".join(how),
        found["quiet"],
        found["beside"],
        letters,
        statistics.mean(rates),
        dict(runs),
    )


def _replay(
    app: Celery, desk: Desk, environ: Mapping[str, str], letters: int, how: Sequence[str]
) -> list[float]:
    """Replay all, with one kill in the middle; return the rates until then and after."""
    words = ("reliable", "dead-letters", "replay", "--all", "--yes", *how)
    rates = []
    for least in (letters // 2, 0):
        begun: list[tuple[float, int]] = []
        process = subprocess.Popen(_command(*words), env=environ, stdout=subprocess.DEVNULL)

        def goes_on(
            _: float, process: Any = process, least: int = least, begun: list[Any] = begun
        ) -> bool:
            begun.append((time.monotonic(), desk.letters.count()))
            if least and begun[-1][1] <= least:
                process.kill()
            return process.poll() is None

        _publish_while(app, "beside", goes_on)
        # From the first letter to the last: a process takes a while to start, and to end.
        first = max(index for index, one in enumerate(begun) if one[1] == begun[0][1])
        last = min(index for index, one in enumerate(begun) if one[1] == begun[-1][1])
        (at, left), (until, rest) = begun[first], begun[last]
        rates.append((left - rest) / (until - at))
    return rates


def _publish_while(app: Celery, phase: str, goes_on: Callable[[float], bool]) -> None:
    short = app.tasks["beside.short"]
    started = time.monotonic()
    due = started
    while goes_on(time.monotonic() - started):
        for queue in ("celery", _OTHER):
            short.apply_async((queue, phase, time.time()), queue=queue)
        due += _EVERY_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))


def _waits(own: Any, phase: str, queue: str) -> Waits:
    return Waits.of([float(one) for one in own.lrange(f"waits:{phase}:{queue}", 0, -1)])


def _print(found: Beside) -> None:
    print(
        f"{found.replayed} letters of {found.busy_ms:g} ms, {found.how}: "
        f"{found.real_rate:.1f} a second; ran (times: letters) {found.runs}"
    )
    for queue in ("celery", _OTHER):
        quiet, beside = found.quiet[queue], found.beside[queue]
        name = "their own queue" if queue == "celery" else "another queue"
        print(
            f"  wait in {name:<15} p50 {quiet.p50_ms:>8.1f} -> {beside.p50_ms:>8.1f} ms, "
            f"p99 {quiet.p99_ms:>8.1f} -> {beside.p99_ms:>8.1f} ms "
            f"(x {beside.p50_ms / quiet.p50_ms:.1f}, x {beside.p99_ms / quiet.p99_ms:.1f}; "
            f"of {quiet.count} and {beside.count})",
            flush=True,
        )


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "celery", "-A", "benchmarks.beside", *words]


def _until(is_so: Callable[[], bool], seconds: float = 600) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)


def _letter_that_takes(busy_ms: float) -> Callable[[int], tuple[str, str, bytes]]:
    return lambda number: (
        _NAME,
        "ValueError: no",
        json.dumps([[number, busy_ms], {}, {}]).encode(),
    )


if _BROKER in os.environ:
    app = create_app(os.environ[_BROKER])
    app.set_current()

if __name__ == "__main__":
    main()
