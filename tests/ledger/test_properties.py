"""Random interleavings of all actors on a real server keep the promises."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import cast

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from celery_reliable.ledger import Ledger
from tests.ledger.scene import LOOK_MS, open_ledger
from tests.ledger.world import STEPS, World
from tests.support.promises import promise

pytestmark = pytest.mark.full


class Walk:
    """The same world with even chances, where hypothesis tries the odd ones."""

    def __init__(self, world: World, choice: Random) -> None:
        self.world = world
        self.choice = choice

    def step(self) -> None:
        world, choice = self.world, self.choice
        task_id, pick = choice.choice("aaab"), choice.choice([0, 0, choice.randrange(10)])
        chance = choice.random()
        if chance < 0.03:
            world.kill_worker(pick)
        elif chance < 0.06 and world.messages:
            world.end_unrun(pick, choice.choice(["withdraw", "cancel", "expire", "discard"]))
        elif chance < 0.07 and world.messages:
            world.bury_message(pick)
        elif chance < 0.09:
            world.deliver_foreign(task_id)
        elif chance < 0.11 and world.messages and world.dead_workers:
            world.deliver_to_zombie(pick, choice.randrange(10))
        else:
            do, flag = choice.choice(STEPS), choice.random() < 0.5
            world.act(do, task_id, pick, choice.choice([1, 2]), choice.choice([0, LOOK_MS]), flag)
        world.the_ledger_says_what_its_answers_said()
        world.every_index_follows_from_the_records()


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    found = open_ledger(ledger_url, "properties")
    yield found
    found.close()


@promise("never-two", "late-changes-nothing")
@pytest.mark.parametrize("seed", range(6))
def test_a_long_walk_keeps_the_promises(
    shared_redis: redis.Redis, ledger: Ledger, seed: int
) -> None:
    walk = Walk(World(ledger, shared_redis), Random(seed))

    for _ in range(800):
        walk.step()

    # The walk has been somewhere.
    assert len(walk.world.settled) > 3


@promise("never-two", "late-changes-nothing")
def test_any_interleaving_keeps_the_promises(shared_redis: redis.Redis, ledger: Ledger) -> None:
    run_state_machine_as_test(
        # It calls what it is given, and says that it has to be a class.
        cast("type[World]", lambda: World(ledger, shared_redis)),
        settings=settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
