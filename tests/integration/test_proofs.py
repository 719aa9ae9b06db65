"""What compares and proves by real workers finds what it is there to find, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proof.cuts.play import Stage
from proof.cuts.points import Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import SCENARIOS
from proof.soak.live import live
from proof.soak.plan import LEASE_SECONDS, Step, World
from proof.soak.table import ONE
from tests.support.processes import run_python

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
