"""`celery reliable verify`, at a server with a worker at work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from celery_reliable.broker import take_next_text
from celery_reliable.ledger.next_attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from tests.docs.blocks import Page
from tests.integration.conftest import Project, Run
from tests.integration.project.limited import add_tasks
from tests.integration.shifts import start, with_shifts
from tests.support.processes import Worker

PAGES = ("proof.rst",)
PROOF = Page(*PAGES)
(COMMAND,) = PROOF.commands()
#: Who reads the page has a minute.
WORDS = [*COMMAND.replace("60", "6").split()[4:], "--json"]


@contextmanager
def busy(act: Callable[[], None]) -> Iterator[None]:
    """Somebody does this again and again."""
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_what_a_worker_does_is_as_the_model_says(
    project: Project, worker: Worker, run: Run
) -> None:
    def work() -> None:
        project.send("work", 0.01).get(timeout=20)

    with busy(work):
        ran = run(*WORDS)

    assert ran.code == 0, ran
    assert ran.json["is_right"] is True
    assert ran.json["judged"]["settle"] > 1
    assert ran.json["judged"]["claim"] > 1
    assert PROOF.left() == []


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)
def test_what_processes_take_by_themselves_is_as_the_model_says(project: Project, run: Run) -> None:
    pooled = with_shifts(project)
    add_tasks(pooled.app)
    start(pooled, concurrency=2, app="tests.integration.project.limited", environ={"RATE": "50/s"})

    def work() -> None:
        """More than the processes have at once; some come back, or have an object, or a rate."""
        sent = [pooled.send("placed", "one", 0), pooled.send("placed", "one", 0)]
        sent += [pooled.send("locked", f"object {n}", 0) for n in range(3)]
        sent += [pooled.send("work", 0) for _ in range(20)]
        sent += [pooled.send("flaky", 1), pooled.send("unique", "two")]
        pooled.send("limited")
        for one in sent:
            one.get(timeout=20)

    with busy(work):
        ran = run(*WORDS)

    assert ran.code == 0, ran
    assert ran.json["uncovered"] == {}
    # Most are settled with the next taking.
    both = together(script("settle"), taking_script(take_next_text()))
    assert pooled.redis.client().script_exists(both.sha) == [True]
    assert ran.json["judged"]["settle"] > 50
    assert ran.json["judged"]["claim"] > 50
