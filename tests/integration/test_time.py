"""Time to run: an attempt that takes longer is taken, unless it says that it goes on."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Project
from tests.integration.figures import is_alive, wait_until_gone
from tests.integration.project.awkward import add_tasks
from tests.support.waiting import wait_for


@pytest.fixture
def timed(project: Project) -> Project:
    """The project with a worker, and tasks that have two seconds to run."""
    add_tasks(project.app)
    project.start_worker("one", app="tests.integration.project.awkward")
    return project


def test_a_stuck_attempt_is_taken_from_its_worker(timed: Project) -> None:
    result = timed.send("stuck_once")
    assert result.get(timeout=20) == "run 2"
    first, second = timed.effects.runs(result.id)
    # A pass takes it, the worker stops it and says so, a pass sends it again.
    assert 2 <= second.started_at - first.started_at <= 2 + 10
    assert not timed.effects.overlaps()
    wait_for(lambda: not is_alive(first.pid), 10, "the stuck process is gone")
    wait_until_gone(timed.redis, result.id)


def test_touching_keeps_an_attempt_and_the_warning_comes_in_time(timed: Project) -> None:
    result = timed.send("touching", 6.0)
    assert result.get(timeout=20) == "touched"
    assert len(timed.effects.runs(result.id)) == 1
    # Touched by the warning's receiver alone, each time with some time left.
    left = [float(text) for text in timed.effects.client.lrange("warned", 0, -1)]
    assert len(left) >= 2
    assert all(0 < seconds <= 0.6 for seconds in left)
    wait_until_gone(timed.redis, result.id)
