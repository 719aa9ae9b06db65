"""`celery reliable verify`, at a server with a worker at work."""

from __future__ import annotations

import threading

from tests.docs.blocks import Page
from tests.integration.conftest import Project, Run
from tests.support.processes import Worker

PAGES = ("proof.rst",)
PROOF = Page(*PAGES)
(COMMAND,) = PROOF.commands()
#: Who reads the page has a minute.
WORDS = [*COMMAND.replace("60", "6").split()[4:], "--json"]


def test_what_a_worker_does_is_as_the_model_says(
    project: Project, worker: Worker, run: Run
) -> None:
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            project.send("work", 0.01).get(timeout=20)

    busy = threading.Thread(target=work)
    busy.start()
    try:
        ran = run(*WORDS)
    finally:
        is_over.set()
        busy.join()

    assert ran.code == 0, ran
    assert ran.json["is_right"] is True
    assert ran.json["judged"]["settle"] > 1
    assert ran.json["judged"]["claim"] > 1
    assert PROOF.left() == []
