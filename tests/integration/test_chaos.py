"""Work goes on while workers are killed at random."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.integration.conftest import Project
from tests.support.effects import Effects
from tests.support.processes import Worker
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

QUICK = ("--without-mingle", "--without-gossip")


def test_three_hundred_tasks_while_a_worker_is_killed_every_two_seconds(
    project: Project,
    start_worker: Callable[..., Worker],
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    names = ["one", "two"]
    workers = {name: start_worker(name, options=QUICK, wait=False) for name in names}
    for worker in workers.values():
        worker.wait_until_ready()
    started_at = effects.now()
    results = []
    kills = 0
    dice = random.Random(7)
    for turn in range(15):
        wait_for(lambda t=turn: effects.now() - started_at >= 2 * t, 10, "the next kill")
        fresh = [project.send("work", 0.05) for _ in range(20)]
        results += fresh
        # In the middle of them, not when all are done.
        wait_for(lambda f=fresh: any(effects.runs(r.id) for r in f), 30, "some of them run")
        name = dice.choice(names)
        workers[name].kill_group()
        kills += 1
        # Under the same name: a stranger to its predecessor's claims all the same.
        workers[name] = start_worker(name, options=QUICK, wait=False)
    assert len(results) == 300
    client = redis_server.client()
    wait_for(lambda: not client.keys("{reliable:0}:task:*"), 60, "all settled")
    finished = {run.task_id for run in effects.finished()}
    assert finished == {r.id for r in results}
    assert not effects.overlaps()
    assert all(r.get(timeout=5) == "worked" for r in results)
    # A task whose worker died between its effect and its settlement runs again; no settled one
    # does.
    settled_twice = [r.id for r in results if len(effects.finished(r.id)) > 2]
    assert not settled_twice
    print("kills:", kills, "runs:", len(effects.runs()), "for", len(results), "tasks")
