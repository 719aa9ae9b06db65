"""Work goes on while workers are killed at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.conftest import Scale
from tests.integration.conftest import SOON, Project
from tests.integration.figures import wait_until_settled
from tests.integration.project.factory import Settings
from tests.support.effects import Effects
from tests.support.load import Load
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.storm import Storm
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

NAMES = ("one", "two")
# 3 000 in the minute of the full scale.
PER_SECOND = 50
SEEDS = (1, 2, 3, 4, 5)

Brew = Callable[[int], Storm]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        option = metafunc.config.getoption
        has_all = option("full") and not option("storm_minutes")
        metafunc.parametrize("seed", SEEDS if has_all else SEEDS[:1])


@pytest.fixture
def project_settings(project_settings: Settings, scale: Scale) -> Settings:
    """The defaults; at small scale what a killed worker had popped is missed sooner."""
    return replace(project_settings, reliable=scale.of(full={}, small=SOON))


@pytest.fixture
def brew(project: Project) -> Brew:
    """Make a storm over two workers, from a seed."""

    def start(name: str) -> Worker:
        return project.start_worker(name, wait=False)

    return lambda seed: Storm(start, NAMES, project.effects, seed)


def assert_nothing_lost_or_doubled(
    effects: Effects, redis_server: RedisServer, storm: Storm, task_ids: list[str]
) -> None:
    """Each task is settled once: what ran again did so as its worker died before that."""
    assert len(set(task_ids)) == len(task_ids)
    finished = effects.finished()
    assert {run.task_id for run in finished} == set(task_ids)
    assert effects.overlaps() == []
    unexplained = storm.unexplained()
    assert not unexplained, storm.story_of(unexplained)
    with redis_server.client(db=1) as results:
        stored = results.mget([f"celery-task-meta-{task_id}" for task_id in task_ids])
    assert all(found is not None and b'"SUCCESS"' in found for found in stored)
    print(
        f"{len(task_ids)} tasks, {len(storm.kills)} kills: {len(effects.runs())} runs, of which "
        f"{len(finished)} finished; 0 lost, 0 overlaps, 0 ran again after their settlement"
    )


@promise("nothing-lost", "never-two")
def test_a_storm_over_short_tasks(
    project: Project, brew: Brew, scale: Scale, seed: int, pytestconfig: pytest.Config
) -> None:
    storm = brew(seed)
    dice = random.Random(seed)
    publish = project.task("work").apply_async
    minutes = pytestconfig.getoption("storm_minutes")
    seconds = int(minutes * 60) if minutes else scale.of(full=60, small=8)
    with Load(lambda: publish((dice.uniform(0.002, 0.010),)).id, PER_SECOND) as load:
        started_at = project.effects.now()
        for turn in range(1, seconds + 1):
            wait_for(lambda t=turn: project.effects.now() - started_at >= t, 10, "the next kill")
            storm.kill_one()
        wait_for(lambda: len(load.ids) >= seconds * PER_SECOND, 30, "all published")
    # A long one may leave much: on a busy machine hardly anything runs while it lasts.
    wait_until_settled(project.redis, max(seconds, scale.of(full=240, small=120)))
    assert_nothing_lost_or_doubled(project.effects, project.redis, storm, load.ids)
