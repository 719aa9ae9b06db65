"""The proof that cuts each command once finds what is lost; `tox run -e cuts` cuts ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.cuts.play import Stage
from proof.cuts.points import Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import SCENARIOS

pytestmark = pytest.mark.full

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
