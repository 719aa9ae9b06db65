"""What dead letters cost who looks at them, and who replays them, when there are many.

`python -m benchmarks.letters [--letters N] [--replays N] [--rate N ...]` starts a Redis of its own,
fills it with so many dead letters of a few groups, by the ledger's own script, and times pages,
groups, filters and counts, how long it takes until the group of each is known, and replays: as fast
as it goes, and at a rate, which the server counts, second by second.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.ledger.scripts import script
from celery_reliable.message.envelope import Envelope
from celery_reliable.operations import Desk, Filter, Kind
from tests.support.redis_server import RedisServer

_PIPELINED = 500
_TASKS = ("billing.charge", "mail.send", "images.scale")
_EXCEPTIONS = ("ValueError: no", "KeyError: 'x'", "TimeoutError: 30 s")
#: For a page a person waits.
_MOST_MS = 300


@dataclass(frozen=True)
class Timed:
    """What one thing took: milliseconds, the median and the worst of some."""

    what: str
    ms: float
    worst_ms: float
    note: str = ""


@dataclass(frozen=True)
class Paced:
    """Replays at a rate: how many there were in a second of the server's clock."""

    asked: float
    replays: int
    seconds: float
    rate: float
    #: The first second and the last are not whole.
    fewest_in_a_second: int
    most_in_a_second: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--replays", type=int, default=10_000)
    parser.add_argument("--rate", type=float, nargs="+", default=[100, 500])
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args()
    logging.getLogger("celery_reliable").setLevel(logging.ERROR)
    print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    server_options = {"appendonly": "no", "save": ""}
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder), server_options) as one:
        timed, paced = _measure(one, options.letters, options.replays, options.rate)
    if options.json:
        found = {"timed": [*map(asdict, timed)], "paced": [*map(asdict, paced)]}
        options.json.write_text(json.dumps(found, indent=2))


def _measure(
    server: RedisServer, letters: int, replays: int, rates: list[float]
) -> tuple[list[Timed], list[Paced]]:
    app = Celery("letters", broker=server.url(0), backend=server.url(1), set_as_current=False)
    for name in _TASKS:
        app.task(base=ReliableTask, name=name, shared=False)(_noop)
    client: Any = server.client()
    with Desk(app, patience_seconds=60) as desk:
        started = time.perf_counter()
        fill(desk, client, letters)
        print(f"{letters} dead letters made in {time.perf_counter() - started:.1f} s")
        timed = _looks(desk, client)
        paced = [_paced(desk, client, rate, replays) for rate in rates]
        timed.append(_replayed(desk, replays))
    client.close()
    reliable_of(app).close()
    app.close()
    return timed, paced


def _looks(desk: Desk, client: Any) -> list[Timed]:
    memory = client.info("memory")["used_memory"]
    pages, groups = partial(desk.tasks.page, state=Kind.DEAD), desk.letter_groups.all
    found = [_told("first reader of groups", 1, lambda _: groups())]
    calls = [
        _clocked(lambda: groups()) for _ in range(200) if (one := groups()).grouped < one.letters
    ]
    indexed = client.info("memory")["used_memory"] - memory
    note = f"the index has {indexed / 1e6:.1f} MB"
    if calls:
        found.append(Timed("a reader meanwhile", statistics.median(calls), max(calls), note))
    group = groups().groups[0].group
    cursors = [""]

    def page(number: int) -> Any:
        one = pages(cursor=cursors[-1])
        cursors.append(one.cursor)
        return one

    found += [
        _told("groups", 20, lambda _: groups()),
        _told("pages, one after the other", 200, page),
        _told("a page of a group", 20, lambda _: pages(group=group)),
        _told("a page of a filter that fits", 20, lambda _: pages(Filter(task="mail.*"))),
        _told("a page of one that fits none", 20, lambda _: pages(Filter(worker="nobody"))),
        _told("a page by the queue", 20, lambda _: pages(Filter(queue="nowhere"))),
        _told(
            "counted by a filter",
            1,
            lambda _: desk.bulk.replay(by="me", filter_=Filter(task="m*"), dry_run=True),
        ),
    ]
    return found


def _told(what: str, times: int, run: Callable[[int], Any]) -> Timed:
    took = [_clocked(lambda number=number: run(number)) for number in range(times)]  # type: ignore[misc]
    one = Timed(what, statistics.median(took), max(took))
    over = "" if one.worst_ms <= _MOST_MS or times == 1 else f"  more than {_MOST_MS} ms"
    print(f"{what:<30} {one.ms:>9.1f} ms   worst {one.worst_ms:>9.1f} ms{over}", flush=True)
    return one


def _clocked(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1000


def _replayed(desk: Desk, count: int) -> Timed:
    took = _clocked(lambda: desk.bulk.replay(by="benchmark", all_=True, rate=None, limit=count))
    one = Timed(f"{count} replays", took, took, f"{count / took * 1000:.0f} a second")
    print(f"{one.what:<30} {one.ms:>9.1f} ms   {one.note}", flush=True)
    return one


def _paced(desk: Desk, client: Any, rate: float, count: int) -> Paced:
    count = min(count, int(rate * 12))
    before = {one.decode() for one in client.zrange(desk.ledger.keys.due, 0, -1)}
    started = time.perf_counter()
    desk.bulk.replay(by="benchmark", all_=True, rate=rate, limit=count)
    seconds = time.perf_counter() - started
    ids = [one.decode() for one in client.zrange(desk.ledger.keys.due, 0, -1)]
    pipe = client.pipeline(transaction=False)
    for task_id in ids:
        if task_id not in before:
            pipe.hget(desk.ledger.keys.record(task_id), "since_ms")
    times = sorted(int(one) for one in pipe.execute())
    # By the server's clock.
    real = (len(times) - 1) * 1000 / (times[-1] - times[0])
    whole = [0] * ((times[-1] - times[0]) // 1000)
    for at_ms in times:
        second = (at_ms - times[0]) // 1000
        if second < len(whole):
            whole[second] += 1
    one = Paced(rate, len(times), seconds, real, min(whole), max(whole))
    print(
        f"asked for {rate:g} a second: {one.rate:.1f} ({one.rate / rate - 1:+.1%}), in any second "
        f"{one.fewest_in_a_second} to {one.most_in_a_second}; {one.replays} in {seconds:.1f} s",
        flush=True,
    )
    return one


def letter_of_some_group(number: int) -> tuple[str, str, bytes]:
    """Return a letter's task, exception and body."""
    return _TASKS[number % 3], _EXCEPTIONS[number % 7 % 3], b"[[], {}, {}]"


def fill(
    desk: Desk,
    client: Any,
    count: int,
    letter: Callable[[int], tuple[str, str, bytes]] = letter_of_some_group,
) -> None:
    """Make so many dead letters, named `letter-0000000` and so on."""
    client.script_load(script("bury").text)
    for start in range(0, count, _PIPELINED):
        pipe = client.pipeline(transaction=False)
        for number in range(start, min(start + _PIPELINED, count)):
            task_id = f"letter-{number:07}"
            name, exception, body = letter(number)
            envelope = Envelope(
                body,
                "application/json",
                "utf-8",
                {"id": task_id, "task": name, "lang": "py", "root_id": task_id},
                {"correlation_id": task_id},
                "",
                "celery",
            )
            step = desk.ledger.calls.bury(
                id=task_id,
                worker="",
                reason="failed",
                exception=exception,
                traceback="Traceback ...\n" * 20,
                message=envelope.to_text(),
                name=name,
                unproved=True,
            )
            pipe.evalsha(*step.call)
        pipe.execute()


def _noop() -> None:
    """Nobody runs it."""


if __name__ == "__main__":
    main()
