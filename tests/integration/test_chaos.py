"""Work goes on while workers are killed at random."""

from __future__ import annotations

import random

import pytest

from tests.conftest import Scale
from tests.integration.conftest import SOON, Project
from tests.integration.figures import wait_until_settled
from tests.support.load import Load
from tests.support.promises import promise
from tests.support.storm import Storm
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

# 3 000 in the minute of the full scale.
PER_SECOND = 50
SEEDS = (1, 2, 3, 4, 5)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    option = metafunc.config.getoption
    has_all = option("full") and not option("storm_minutes")
    metafunc.parametrize("seed", SEEDS if has_all else SEEDS[:1])


@promise("nothing-lost", "never-two")
def test_a_storm_over_short_tasks(
    project: Project, scale: Scale, seed: int, pytestconfig: pytest.Config
) -> None:
    """Each task is settled once: what ran again did so as its worker died before that."""
    # At small scale what a killed worker had popped is missed sooner.
    project = project.with_settings(reliable=scale.of(full={}, small=SOON))
    effects = project.effects
    names = ("one", "two")
    storm = Storm(lambda name: project.start_worker(name, wait=False), names, effects, seed)
    dice = random.Random(seed)
    publish = project.task("work").apply_async
    minutes = pytestconfig.getoption("storm_minutes")
    seconds = int(minutes * 60) if minutes else scale.of(full=60, small=8)
    with Load(lambda: publish((dice.uniform(0.002, 0.010),)).id, PER_SECOND) as load:
        started_at = effects.now()
        for turn in range(1, seconds + 1):
            wait_for(lambda t=turn: effects.now() - started_at >= t, 10, "the next kill")
            storm.kill_one()
        wait_for(lambda: len(load.ids) >= seconds * PER_SECOND, 30, "all published")
    # A long one may leave much: on a busy machine hardly anything runs while it lasts.
    wait_until_settled(project.redis, max(seconds, scale.of(full=240, small=120)))

    assert len(set(load.ids)) == len(load.ids)
    assert {run.task_id for run in effects.finished()} == set(load.ids)
    assert effects.overlaps() == []
    unexplained = storm.unexplained()
    assert not unexplained, storm.story_of(unexplained)
    with project.redis.client(db=1) as results:
        stored = results.mget([f"celery-task-meta-{task_id}" for task_id in load.ids])
    assert all(found is not None and b'"SUCCESS"' in found for found in stored)
    print(f"{len(load.ids)} tasks, {len(storm.kills)} kills: {len(effects.runs())} runs")
