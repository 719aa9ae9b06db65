"""The guide to places does what it says: its tasks, in a worker of this process."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from celery_reliable.app import reliable_of
from tests.docs.blocks import Page
from tests.docs.commands import run
from tests.support.redis_server import RedisServer
from tests.support.telling import lines

PAGES = ("guides/places.rst",)
GUIDE = Page(*PAGES)
TASKS = ("synchronize", "print_catalogue", "convert_document")
#: What each function of shop.work is called with, of which so many may be at once.
MOST = {"fetch": 3, "render": 2, "convert": 4}


class Work(ModuleType):
    """What stands in shop/work.py: it takes its time, and counts who is there."""

    def __init__(self) -> None:
        super().__init__("shop.work")
        self._lock = threading.Lock()
        self._now: Counter[Any] = Counter()
        self.most: Counter[Any] = Counter()

    def __getattr__(self, name: str) -> Any:
        if name not in MOST:
            raise AttributeError(name)
        return lambda *about: self._pass(name, about)

    def _pass(self, name: str, about: tuple[Any, ...]) -> tuple[Any, ...]:
        # Of what is limited for an object, each object counts for itself.
        key = (name, about[0] if len(about) > 1 else None)
        with self._lock:
            self._now[key] += 1
            self.most[key] = max(self.most[key], self._now[key])
        threading.Event().wait(0.05)
        if about[0] != "small":
            # However slow the machine: as many as may be are there once.
            deadline = time.monotonic() + 10
            while self.most[key] < MOST[name] and time.monotonic() < deadline:
                threading.Event().wait(0.01)
        with self._lock:
            self._now[key] -= 1
        return about


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    made = Work()
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    monkeypatch.setitem(sys.modules, "shop.work", made)
    return made


@pytest.fixture
def declared(work: Work, redis_server: RedisServer) -> Iterator[Celery]:
    """An app with all tasks of the page."""
    found: dict[str, Any] = {"__name__": "shop.tasks"}
    app = Celery("shop", broker=redis_server.url(), backend=redis_server.url(1))
    for block in GUIDE.of("python"):
        exec(block.text, found)
    app.finalize()
    yield app
    reliable_of(app).close()
    app.close()


def told(command: str, app: Celery, **known: str) -> str:
    ran = run(command, app, known=known)
    assert ran.exit_code == 0, (command, ran.output)
    return " ".join(ran.output.split())


def its_commands_tell_of(declared: Celery) -> None:
    """Before there is a worker: who has the places, and who waits."""
    convert = declared.tasks["shop.tasks.convert_document"]
    ids = [convert.delay("large", number).id for number in range(7)]
    listed, one, whole, shown, status = GUIDE.commands("Who has it, and who waits")

    assert "4 of 4 places taken" in told(listed, declared)
    assert "1 object," in told(listed, declared)
    answer = told(one, declared)
    assert [answer.index(task_id) for task_id in ids] == sorted(map(answer.index, ids))
    assert answer.partition("waiters: ")[2].count(",") == 2
    assert "0 of 2 places taken" in told(whole, declared)
    assert "with 2 before it" in told(shown, declared, ID=ids[6])
    assert "3 by object (3 shop.tasks.convert_document)" in told(status, declared)
    refused = run(one.rpartition(" --id")[0], declared)
    assert (refused.exit_code, "Give its id" in " ".join(refused.output.split())) == (2, True)
    assert "object_held" in lines()


def never_more_at_once(tasks: dict[str, Any], work: Work) -> None:
    """With one."""
    results = [tasks["synchronize"].delay(7, page) for page in range(8)]
    results += [tasks["print_catalogue"].delay(number) for number in range(6)]
    flood = [tasks["convert_document"].delay("large", number) for number in range(12)]
    beside = tasks["convert_document"].delay("small", 1)

    assert [one.get(timeout=30) for one in results[:8]] == [[7, page] for page in range(8)]
    assert beside.get(timeout=30) == ["small", 1]
    for one in [*results, *flood]:
        one.get(timeout=30)

    assert work.most["fetch", 7] == 3
    assert work.most["render", None] == 2
    assert work.most["convert", "large"] == 4


def test_its_tasks_wait_are_told_of_and_are_never_more_than_it_says(
    declared: Celery, work: Work
) -> None:
    its_commands_tell_of(declared)
    with start_worker(declared, pool="threads", concurrency=8, perform_ping_check=False):
        never_more_at_once({name: declared.tasks[f"shop.tasks.{name}"] for name in TASKS}, work)


def test_every_block_is_run() -> None:
    GUIDE.of("python")
    GUIDE.commands("Who has it, and who waits")
    assert GUIDE.left() == []
