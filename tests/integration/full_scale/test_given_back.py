"""The figures of what is given back behind busy workers; small unless `--full` is given."""

from __future__ import annotations

import random

import pytest

from celery_reliable.broker.unacked import script
from tests.conftest import Scale
from tests.integration.conftest import Project
from tests.integration.figures import wait_until_settled
from tests.support.promises import promise
from tests.support.waiting import wait_for


@pytest.mark.prefork_alone("where nothing waits in a worker, nothing is given back")
@promise("nothing-behind-busy", "nothing-lost", "never-two")
def test_kills_of_workers_that_give_back(project: Project, scale: Scale) -> None:
    """Each start fetches ahead, and gives back within a fraction of a second."""
    project = project.with_settings(
        reliable={
            "LEASE_SECONDS": 4,
            "SWEEP_SECONDS": 0.5,
            "MAX_LOSSES": 1_000,
            "GIVE_BACK_SECONDS": 0.1,
        }
    )
    n_kills, choice = scale.of(full=30, small=3), random.Random(1)
    workers = project.start_workers("one", "two", concurrency=1)
    ids = []
    for _ in range(n_kills):
        ids += [project.send("work", choice.choice((0.01, 0.5, 1.0))).id for _ in range(6)]
        name = choice.choice(("one", "two"))
        begun = len(project.effects.runs())
        wait_for(lambda n=begun: len(project.effects.runs()) > n, 30, "somebody begins a task")
        pause = project.effects.now() + choice.random()
        wait_for(lambda t=pause: project.effects.now() > t, 10, "some moment")
        workers[name].kill_group()
        workers[name] = project.start_worker(name, concurrency=1)
    wait_until_settled(project.redis, 120)
    assert not [one for one in ids if not project.effects.finished(one)], "lost"
    assert not project.effects.overlaps()
    # Nothing was charged but what ran when its worker was killed.
    assert len(project.effects.runs()) <= len(ids) + n_kills
    # And it was about this.
    assert project.redis.client().script_exists(script("requeue").sha) == [True]
