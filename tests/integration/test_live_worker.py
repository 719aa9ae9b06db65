"""What a worker does, compared with the model while it works."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from celery_reliable.broker import take_next_text
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from tests.docs.blocks import Page
from tests.integration.conftest import APP, Project
from tests.integration.project.limited import add_tasks
from tests.integration.shifts import start, with_shifts
from tests.support.processes import REPOSITORY, run_python

pytestmark = pytest.mark.full

PAGES = ("proof.rst",)
PROOF = Page(*PAGES)
(COMMAND,) = PROOF.commands()
#: A reader of the page has a minute, and an app of his own.
WORDS = shlex.split(COMMAND.replace("60", "6").replace(" proj ", f" {APP} "))[1:]


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


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere than in the ledger nobody has a shift"
)
def test_what_workers_do_is_as_the_model_says(project: Project) -> None:
    """The processes take their own messages: most settlements go with the next taking."""
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
        ran = run_python(*WORDS, folder=REPOSITORY, environ=pooled.environ("ready:none", {}))

    found = json.loads(ran.stdout)
    assert found["problem"] == ""
    assert found["uncovered"] == {}
    both = together(script("settle"), taking_script(take_next_text()))
    assert pooled.redis.client().script_exists(both.sha) == [True]
    assert found["judged"]["settle"] > 50
    assert found["judged"]["claim"] > 50
    assert PROOF.left() == []
