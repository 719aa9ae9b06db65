"""The proof that cuts each command once: it comes to its points, and finds what is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from proof.cuts.choosing import Counted, points_of
from proof.cuts.play import Outcome, Stage
from proof.cuts.points import EFFECTS, TIMES, Point
from proof.cuts.proxy import ScriptNames
from proof.cuts.scenarios import SCENARIOS
from tests.integration.figures import is_alive
from tests.support.preloaded import REPOSITORY
from tests.support.progress import Progress
from tests.support.waiting import wait_for

Play = Callable[[str], Outcome]

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


def test_a_play_is_not_over_while_a_pass_may_send_something(
    stages: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = stages()
    assert stage.is_at_rest
    stage.client.set("{reliable:0}:pass", "somebody's")
    assert stage.left() == []
    assert not stage.is_at_rest
    stage.client.delete("{reliable:0}:pass")

    def look(*keys: str) -> Any:
        """It ends just now, and leaves the message that it has sent."""
        stage.client.lpush("celery", "a message")
        return 0

    monkeypatch.setattr(stage.client, "exists", look)
    assert not stage.is_at_rest


def test_a_run_that_is_ended_leaves_nobody_and_another_goes_on(tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    heartbeats = [f"publish-run-settle/main/heartbeat#1/after/{effect}" for effect in EFFECTS]
    command = [sys.executable, "-m", "proof.cuts", "--jobs", "1", "--progress", str(progress)]
    folders = [tmp_path / name for name in ("ended", "again")]
    for folder in folders:
        folder.mkdir()
    ended = [*command, "--folder", str(folders[0]), "--point", ARRIVAL, *heartbeats]
    with subprocess.Popen(ended, cwd=REPOSITORY) as run:
        wait_for(progress.exists, 120, "the outcome of the first point")
        family = psutil.Process(run.pid).children(recursive=True)
        run.terminate()
        run.wait(60)
    assert family
    wait_for(lambda: not any(is_alive(one.pid) for one in family), 20, "the end of all")
    (row,) = Progress(progress).rows
    assert row == [ARRIVAL, "held", []]

    again = subprocess.run(
        [*command, "--folder", str(folders[1]), "--point", ARRIVAL],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "1 of 1 points cut: 1 held, 0 not reached, 0 FAULT" in again.stdout
    assert Progress(progress).rows == [row]


def test_a_point_is_written_and_read() -> None:
    point = Point.parse(POP)
    assert str(point) == POP
    assert (point.command, point.number, point.time, point.effect) == ("BRPOP", 1, "after", "reset")
    for wrong in ("", POP[:-1], POP.replace("#1", ""), POP.replace("main", "beat")):
        with pytest.raises(ValueError, match=r"point|unpack"):
            Point.parse(wrong)


def test_every_command_has_its_points() -> None:
    counts = {("publisher", "record"): 2, ("main", "HGET"): 1, ("main", "heartbeat"): 7}
    counted = Counted({**counts, ("main", "BRPOP"): 2}, {("main", "BRPOP")})
    found = [str(one) for one in points_of("s", counted, {("main", "heartbeat"): 9})]
    assert sorted(found) == sorted(
        [
            # The first was sent before, and pops what is published; the last pops nothing.
            *[f"s/main/BRPOP#1/after/{effect}" for effect in EFFECTS],
            *[f"s/main/BRPOP#2/before/{effect}" for effect in EFFECTS],
            # A read is the same to all, whether it was executed; a beat is like the others.
            *[f"s/main/HGET#1/before/{effect}" for effect in EFFECTS],
            *[f"s/main/heartbeat#1/{time}/{effect}" for time in TIMES for effect in EFFECTS],
            *[f"s/publisher/record#1/{time}/{effect}" for time in TIMES for effect in EFFECTS],
            # Who died before the second has died after the first.
            "s/publisher/record#2/before/reset",
            *[f"s/publisher/record#2/after/{effect}" for effect in EFFECTS],
        ]
    )
