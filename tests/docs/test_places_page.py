"""The guide to places does what it says: its tasks, in a worker of this process."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker

from celery_reliable.app import reliable_of
from tests.docs.blocks import Page
from tests.support.redis_server import RedisServer

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
def tasks(work: Work, redis_server: RedisServer) -> Iterator[dict[str, Any]]:
    """All tasks of the page, in one app with a worker."""
    found: dict[str, Any] = {"__name__": "shop.tasks"}
    app = Celery("shop", broker=redis_server.url(), backend=redis_server.url(1))
    for block in GUIDE.of("python"):
        exec(block.text, found)
    with start_worker(app, pool="threads", concurrency=8, perform_ping_check=False):
        yield {name: app.tasks[f"shop.tasks.{name}"] for name in TASKS}
    reliable_of(app).close()
    app.close()


def test_never_more_than_the_page_says(tasks: dict[str, Any], work: Work) -> None:
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


def test_every_block_is_run() -> None:
    GUIDE.of("python")
    assert GUIDE.left() == []
