"""What passes of the sweeper cost, however many records are tracked and however many wait.

`python -m benchmarks.passes [--tracked N ...] [--overdue N ...] [--rounds N] [--full]` starts a
Redis of its own and fills it with so many queued tasks, which nobody runs.  At each size some of
them become overdue, and the passes are timed that look at them: their messages still wait, or are
lost and sent again.  `--steady SECONDS` lets a backlog of `--waiting` tasks become overdue by
itself, and tells what sweeper and Redis spend on it.

Each size is measured beside the smallest that has as many, on a second Redis, round by round, and
the ratio is the median of the rounds' own: a busy machine slows both.  The longest single command,
scripts included, is SLOWLOG's: the median of the rounds, and the worst, in which it shows that the
machine was busy.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from celery import Celery

from benchmarks.backlog import Backlog
from celery_reliable import ReliableTask, signals
from celery_reliable.app import reliable_of
from celery_reliable.ledger.scripts import names, script
from celery_reliable.model import SweepReport
from celery_reliable.recovery.sweeper import Sweeper
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

_QUEUE = "celery"
#: Its messages are lost whenever somebody looks.
_LOST_QUEUE = "lost"
#: So that nothing is overdue by itself while passes are timed.
_FAR_SECONDS = 24 * 60 * 60
#: Single commands that are quicker are not told apart.
_WITNESSED_US = 100
_SLOWLOG_LENGTH = 10_000
#: What the benchmark itself asks the server.
_OWN_COMMANDS = ("config", "info", "slowlog")


@dataclass(frozen=True)
class Round:
    """What it took to look once at so many overdue records, in passes that follow each other."""

    ms: float
    #: Of sweeper and Redis, in ms.
    cpu_ms: float
    #: Those in scripts included.
    commands: int
    longest_ms: float
    longest: str


@dataclass(frozen=True)
class Figures:
    """The medians of all rounds at one size, and the ratios to the smallest."""

    tracked: int
    overdue: str
    ms: float
    ratio: float
    cpu_ms: float
    cpu_ratio: float
    commands: int
    longest_ms: float
    longest: str
    worst_ms: float
    redis_mb: float


@dataclass(frozen=True)
class Spent:
    """What sweeper and Redis spent on an overdue backlog, in so many seconds."""

    waiting: int
    seconds: float
    looked_at: int
    sent_again: int
    sweeper_cpu_seconds: float
    redis_cpu_seconds: float
    commands: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tracked", type=int, nargs="+", default=[1000, 20_000])
    parser.add_argument("--overdue", type=int, nargs="+", default=[200, 1000])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steady", type=int, default=0, help="seconds")
    parser.add_argument("--waiting", type=int, default=20_000, help="tasks of that backlog")
    parser.add_argument("--age", type=int, default=60, help="seconds that they have waited before")
    parser.add_argument("--full", action="store_true", help="up to a million records; minutes")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    if options.full:
        options.tracked, options.rounds = [200, 1000, 100_000, 200_000, 1_000_000], 11
        options.waiting, options.steady = 200_000, 300
    # A pass that sends something again says so, each time.
    logging.getLogger("celery_reliable").setLevel(logging.ERROR)
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    figures = measure(sorted(options.tracked), sorted(options.overdue), options.rounds)
    spent = measure_steady(options.waiting, options.age, options.steady) if options.steady else []
    if options.json:
        found = {"figures": [*map(asdict, figures)], "steady": [*map(asdict, spent)]}
        options.json.write_text(json.dumps(found, indent=2))


def measure(tracked: Sequence[int], overdue: Sequence[int], rounds: int) -> list[Figures]:
    """Time passes at each size; one server is filled up from each to the next."""
    found = []
    print(
        f"\n{'tracked':>9}  {'overdue':<12}  {'ms':>7}  {'ratio':>5}  {'CPU ms':>7}  {'ratio':>5}  "
        f"{'commands':>8}  {'longest ms':>10}  {'of':<12}  {'worst':>5}  {'Redis MB':>8}"
    )
    with ExitStack() as stack:
        bench = stack.enter_context(_bench(queued_seconds=_FAR_SECONDS))
        small = {}
        for count in overdue:
            small[count] = stack.enter_context(_bench(queued_seconds=_FAR_SECONDS))
            small[count].fill(next(size for size in tracked if size >= count))
        for size in tracked:
            bench.fill(size - len(bench.ids))
            for count, is_waiting in [
                (0, True),
                *((count, True) for count in overdue if count <= size),
                (overdue[-1], False),
            ]:
                other = small[count or overdue[0]]
                pairs = [
                    (bench.look(count, is_waiting), other.look(count, is_waiting))
                    for _ in range(rounds + 1)
                ]
                # Whatever the first passes connect to and load is not measured.
                one = _figures(bench, _named(count, is_waiting), pairs[1:])
                found.append(one)
                print(
                    f"{one.tracked:>9}  {one.overdue:<12}  {one.ms:>7.1f}  {one.ratio:>5.2f}  "
                    f"{one.cpu_ms:>7.1f}  {one.cpu_ratio:>5.2f}  {one.commands:>8}  "
                    f"{one.longest_ms:>10.2f}  {one.longest:<12}  {one.worst_ms:>5.1f}  "
                    f"{one.redis_mb:>8.1f}",
                    flush=True,
                )
    return found


def _named(count: int, is_waiting: bool) -> str:
    return f"{count} {'waiting' if is_waiting else 'lost'}" if count else "none"


def _figures(bench: _Bench, overdue: str, pairs: Sequence[tuple[Round, Round]]) -> Figures:
    longest_ms, longest = statistics.median_high((one.longest_ms, one.longest) for one, _ in pairs)
    return Figures(
        tracked=len(bench.ids),
        overdue=overdue,
        ms=statistics.median(one.ms for one, _ in pairs),
        ratio=statistics.median(one.ms / other.ms for one, other in pairs),
        cpu_ms=statistics.median(one.cpu_ms for one, _ in pairs),
        cpu_ratio=statistics.median(one.cpu_ms / other.cpu_ms for one, other in pairs),
        commands=pairs[-1][0].commands,
        longest_ms=longest_ms,
        longest=longest,
        worst_ms=max(one.longest_ms for one, _ in pairs),
        redis_mb=bench.client.info("memory")["used_memory"] / 1e6,
    )


def measure_steady(waiting: int, age_seconds: int, seconds: int) -> list[Spent]:
    """Tell, by the minute, what a backlog costs that is overdue and that nobody consumes."""
    found = []
    print(f"\n{waiting} tasks that have waited {age_seconds} s when they are first looked at:")
    with _bench(queued_seconds=60) as bench:
        # Due as they would have become, over one QUEUED_SECONDS.
        bench.fill(waiting, age_ms=age_seconds * 1000, due_within_ms=60_000)
        wait_for(lambda: bench.backlog.ledger.due(1)[1], 120, "the first to be overdue")
        left = float(seconds)
        while left > 0:
            one = bench.sweep_for(min(60.0, left))
            left -= 60
            found.append(one)
            print(
                f"  {one.seconds:.0f} s: {one.looked_at} looked at, {one.sent_again} sent again; "
                f"CPU: sweeper {one.sweeper_cpu_seconds:.2f} s, Redis {one.redis_cpu_seconds:.2f} "
                f"s; {one.commands} commands",
                flush=True,
            )
    return found


def _noop() -> None:
    """Nobody runs it."""


@contextmanager
def _bench(*, queued_seconds: float) -> Iterator[_Bench]:
    # Nothing is written to disk: it would be the disk that is measured.
    options = {"appendonly": "no", "save": ""}
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder), options) as server:
        bench = _Bench(server, queued_seconds)
        try:
            yield bench
        finally:
            bench.close()


class _Bench:
    """A sweeper, without any worker, and what it looks at."""

    def __init__(self, server: RedisServer, queued_seconds: float) -> None:
        app = Celery("passes", broker=server.url(0), backend=server.url(1), set_as_current=False)
        app.conf.reliable = {
            "SWEEP_SECONDS": 0.5,
            "LEASE_SECONDS": 5,
            "QUEUED_SECONDS": queued_seconds,
        }
        self.app = app
        task = app.task(base=ReliableTask, name="benchmark.noop", shared=False)(_noop)
        self.backlog = Backlog(app, task, server)
        self.client = self.backlog.client
        self.due_key = self.backlog.ledger.keys.due
        self.queued_ms = int(queued_seconds * 1000)
        self.sweeper = Sweeper(app)
        self.reports: list[SweepReport] = []
        signals.pass_finished.connect(self._note, sender=app)
        self.ids: list[str] = []
        self._dice = random.Random(5)
        self._scripts = {script(name).sha: name for name in names()}
        self.client.config_set("slowlog-log-slower-than", _WITNESSED_US)
        self.client.config_set("slowlog-max-len", _SLOWLOG_LENGTH)

    def close(self) -> None:
        """Close the connections."""
        self.sweeper.close()
        self.backlog.close()
        reliable_of(self.app).close()
        self.app.close()

    def _note(self, report: SweepReport, **_: Any) -> None:
        self.reports.append(report)

    def fill(self, count: int, *, age_ms: int = 0, due_within_ms: int = 0) -> None:
        """Publish so many more; *due_within_ms*: over which time they become due."""
        if not due_within_ms:
            self.ids += self.backlog.add(_QUEUE, count, due_in_ms=self.queued_ms, age_ms=age_ms)
            return
        steps = 60
        for step in range(steps):
            # From the time on that filling takes.
            due_in_ms = self.queued_ms + due_within_ms * step // steps
            self.ids += self.backlog.add(_QUEUE, count // steps, due_in_ms=due_in_ms, age_ms=age_ms)

    def look(self, count: int, is_waiting: bool) -> Round:
        """Have the sweeper look at *count* overdue records."""
        self._make_overdue(count, is_waiting=is_waiting)
        self.client.slowlog_reset()
        self.client.config_resetstat()
        seconds, cpu_seconds = self._pass()
        commands = self._commands()
        assert sum(one.looked_at for one in self.reports) == count
        assert sum(one.resent for one in self.reports) == (0 if is_waiting else count)
        return Round(seconds * 1000, cpu_seconds * 1000, commands, *max(self._slow()))

    def _make_overdue(self, count: int, *, is_waiting: bool) -> None:
        if is_waiting:
            chosen = self._dice.sample(self.ids, count)
            if chosen:
                self.client.zadd(self.due_key, {i: n for n, i in enumerate(chosen, 1)}, xx=True)
            return
        self.client.delete(_LOST_QUEUE)
        self.backlog.add(_LOST_QUEUE, count, due_in_ms=0, is_sent=False)

    def _pass(self) -> tuple[float, float]:
        """Return what the sweeper takes when its time has come, in seconds and in those of CPU."""
        while True:
            self.reports.clear()
            cpu_before = self._cpu_seconds()
            started = time.perf_counter()
            report, wait_seconds = self.sweeper.run_if_due()
            took = time.perf_counter() - started
            if report is not None:
                return took, sum(self._cpu_seconds()) - sum(cpu_before)
            time.sleep(wait_seconds)

    def _commands(self) -> int:
        stats = self.client.info("commandstats")
        return sum(
            one["calls"]
            for name, one in stats.items()
            if name.removeprefix("cmdstat_") not in _OWN_COMMANDS
        )

    def _slow(self) -> Iterator[tuple[float, str]]:
        for one in self.client.slowlog_get(_SLOWLOG_LENGTH):
            words = one["command"].decode("utf-8", "replace").split(" ", 2)
            name = words[0].lower()
            if name not in _OWN_COMMANDS:
                name = self._scripts.get(words[1], name) if name == "evalsha" else name
                yield one["duration"] / 1000, name
        yield _WITNESSED_US / 1000, "(below)"

    def sweep_for(self, seconds: float) -> Spent:
        """Sweep as a worker does, for so long."""
        self.reports.clear()
        self.client.config_resetstat()
        own_before, redis_before = self._cpu_seconds()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _, wait_seconds = self.sweeper.run_if_due()
            time.sleep(wait_seconds)
        own, redis = self._cpu_seconds()
        return Spent(
            waiting=len(self.ids),
            seconds=seconds,
            looked_at=sum(one.looked_at for one in self.reports),
            sent_again=sum(one.resent for one in self.reports),
            sweeper_cpu_seconds=own - own_before,
            redis_cpu_seconds=redis - redis_before,
            commands=self._commands(),
        )

    def _cpu_seconds(self) -> tuple[float, float]:
        """Return the CPU that this process and Redis have used so far."""
        cpu = self.client.info("cpu")
        return time.process_time(), float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])


if __name__ == "__main__":
    main()
