"""The proof that cuts each command once: it comes to its points, and finds what is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proof.cuts.play import Outcome, Stage
from proof.cuts.points import Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import SCENARIOS

pytestmark = pytest.mark.full

#: The pop of what is published, whose reply is lost on the way to stock Celery's worker.
POP = "publish-run-settle/main/BRPOP#1/after/reset"
#: The same of ours: it was filed, and claimed.
ARRIVAL = "publish-run-settle/main/lock+claim+take_next#1/after/reset"


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**options: bool | float) -> Stage:
        made.append(Stage(tmp_path / str(len(made)), ScriptNames(), **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for stage in made:
        stage.close()


def play(stage: Stage, text: str) -> Outcome:
    point = Point.parse(text)
    return stage.play(SCENARIOS[point.scenario], point, fresh=False)


@pytest.mark.prefork_alone("a process that takes the next message settles by another script")
def test_each_way_of_cutting_is_survived(stages: Callable[..., Stage]) -> None:
    stage = stages()
    for text in (
        "publish-run-settle/child/settle#1/before/kill",
        "publish-run-settle/child/settle#1/after/reset",
        "publish-run-settle/publisher/record#2/after/kill",
        ARRIVAL,
    ):
        outcome = play(stage, text)
        assert (outcome.word, outcome.problems) == ("held", []), text
        kinds = [row["kind"] for row in outcome.rows]
        # Who died when it was recorded did not hear of it, and was started again.
        tasks = 2 if "publisher" in text else 1
        assert (kinds.count("publish"), kinds.count("settled")) == (tasks, tasks), text
        # Who died before it had settled runs again.
        assert kinds.count("begin") == (2 if "before/kill" in text else tasks), text


def test_it_finds_what_stock_celery_loses(stages: Callable[..., Stage]) -> None:
    outcome = play(stages(stock=True, deadline_seconds=12), POP)
    assert outcome.word == "FAULT"
    assert any(problem.startswith("lost: ") for problem in outcome.problems)
