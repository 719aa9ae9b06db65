"""What compares and proves by real workers finds what it is there to find, once."""

from __future__ import annotations

import json
import os
import shlex
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from celery_reliable.broker import take_text
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from proof.cuts.play import Stage
from proof.cuts.points import Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import SCENARIOS
from proof.soak.live import live
from proof.soak.plan import LEASE_SECONDS, Step, World
from proof.soak.table import ONE
from tests.docs.blocks import Page
from tests.integration.conftest import APP, Project
from tests.integration.project.limited import add_tasks
from tests.support.processes import REPOSITORY, run_python
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_a_killed_child_is_back_with_the_package_and_not_with_stock_celery(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    chosen = ("--faults", "child", "--only", "celery-reliable", "celery")
    words = ("--bound", 8, "--rounds", 0, "--json", found)
    run_python("-m", "benchmarks.arena", *chosen, *words, folder=tmp_path)

    by_system = json.loads(found.read_text())["faults"]["child"]
    ours, stock = by_system["celery-reliable"], by_system["celery"]
    assert (ours["not_back"], ours["ended_twice"], ours["at_once"]) == (0, 0, 0)
    assert ours["seconds"] is not None
    assert (stock["not_back"], stock["seconds"]) == (1, None)


#: The pop of what is published, whose reply is lost on the way to stock Celery's worker.
POP = "publish-run-settle/main/BRPOP#1/after/reset"


def test_it_finds_what_stock_celery_loses(tmp_path: Path) -> None:
    point = Point.parse(POP)
    stage = Stage(tmp_path, ScriptNames(), stock=True, deadline_seconds=12)
    try:
        outcome = stage.play(SCENARIOS[point.scenario], point, fresh=False)
    finally:
        stage.close()
    assert outcome.word == "FAULT"
    assert any(problem.startswith("lost: ") for problem in outcome.problems)


def test_a_full_server_costs_what_is_written_down(tmp_path: Path) -> None:
    world = World("alone oom", ONE, [Step(2.0, "oom", LEASE_SECONDS, "two", "", 1)])
    lived = live(world, tmp_path / "world", rest_seconds=120.0)

    told = [str(one) for one in (*lived.happened, *lived.deaths, *lived.allowed)]
    assert (lived.problems, lived.allowed) == ([], []), told
    assert lived.counts["published"]
    (full,) = lived.happened
    assert (full.fault, abs(full.measured) > 0) == ("oom", True)
    assert any(row["kind"] == "begin" and row["at"] / 1e6 > full.until for row in lived.rows), (
        "work goes on"
    )


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
    add_tasks(project.app)
    project.start_worker(app="tests.integration.project.limited", environ={"RATE": "50/s"})

    def work() -> None:
        """More than the processes have at once; some come back, or have an object, or a rate."""
        sent = [project.send("placed", "one", 0), project.send("placed", "one", 0)]
        sent += [project.send("locked", f"object {n}", 0) for n in range(3)]
        sent += [project.send("work", 0) for _ in range(20)]
        sent += [project.send("flaky", 1), project.send("unique", "two")]
        project.send("limited")
        for one in sent:
            one.get(timeout=20)

    both, client = (
        together(script("settle"), taking_script(take_text())),
        project.redis.client(),
    )
    with busy(work):
        wait_for(
            lambda: client.script_exists(both.sha) == [True], 60, "one that goes with a taking"
        )
        ran = run_python(*WORDS, folder=REPOSITORY, environ=project.environ("ready:none", {}))

    found = json.loads(ran.stdout)
    assert found["problem"] == ""
    assert found["uncovered"] == {}
    assert found["judged"]["settle"] > 20
    assert found["judged"]["claim"] > 20
    assert PROOF.left() == []
