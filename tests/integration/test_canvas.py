"""Canvases, and Celery's own tasks that carry others, are completed while workers are killed: at
random, and at the points that matter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.result import GroupResult

from celery_reliable.operations.dead_letters import DeadLetters
from tests.conftest import Scale
from tests.integration.conftest import SOON, Project
from tests.integration.figures import RECORD, wait_until_settled
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.storm import Storm
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

NAMES = ("one", "two")


@pytest.fixture
def project(project: Project) -> Project:
    """Messages that a worker popped when it was killed are missed soon."""
    # Many are killed, and some of them often: that is no poison.
    return project.with_settings(reliable={**SOON, "MAX_LOSSES": 50})


def ids_of(result: Any) -> list[str]:
    """The ids of all members that a canvas's result leads back to."""
    if isinstance(result, GroupResult):
        own = [found for one in result.results for found in ids_of(one)]
    else:
        own = [result.id]
    return own + (ids_of(result.parent) if result.parent is not None else [])


@promise("nothing-lost", "never-two")
def test_canvases_of_every_shape(
    project: Project, effects: Effects, redis_server: RedisServer, scale: Scale
) -> None:
    """Worker groups are killed at random moments and started again under the same name."""
    step, gather = project.task("step"), project.task("gather")
    storm = Storm(lambda name: project.start_worker(name, wait=False), NAMES, effects, 41)
    results: list[Any] = []
    expected: list[Any] = []

    def publish(canvas: Any, value: Any) -> None:
        results.append(canvas.apply_async())
        expected.append(value)

    for _ in range(scale.of(full=10, small=1)):
        publish(chain(step.s(0, 1), *[step.s(n) for n in range(2, 7)]), 21)
        publish(group(step.s(n, n) for n in range(10)), [2 * n for n in range(10)])
        publish(chord((step.s(n, 1) for n in range(10)), gather.s()), 55)
        # A group in a chain is a chord, and so is what follows it.
        publish(chain(step.s(1, 1), group(step.s(n) for n in range(4)), gather.s()), 14)
        publish(project.task("host").s([1, 2, 3, 4]), 10)
        began = len(storm.kills)
        storm.rage(
            lambda b=began: len(storm.kills) - b >= 3 and all(one.ready() for one in results),
            (0.2, 1.2),
            240,
        )
    for result, value in zip(results, expected, strict=True):
        assert result.get(timeout=20) == value
    wait_until_settled(redis_server, 30)
    # Every member ran to its end, and again only where a kill came before its settlement.
    members = {member for result in results for member in ids_of(result)}
    assert members - {run.task_id for run in effects.finished()} == set(), "lost"
    assert effects.overlaps() == []
    unexplained = storm.unexplained()
    assert not unexplained, storm.story_of(unexplained)
    print(f"{len(results)} canvases, {len(storm.kills)} kills: {len(effects.runs())} runs")


@pytest.mark.parametrize(
    "trap",
    [
        "child before it is counted",
        "worker before it is counted",
        "child before the body is sent",
        "worker before the body is sent",
        "worker after the body is sent",
    ],
)
def test_a_chord_whose_member_is_killed_when_its_result_is_stored(
    project: Project, effects: Effects, redis_server: RedisServer, trap: str
) -> None:
    """Whether its chord knows of it is another matter."""
    project.start_workers(*NAMES, concurrency=1, environ={"TRAP": trap})
    header = [project.task("step").s(n, 0) for n in range(3)]
    result = chord(header, project.task("gather").s(0.0)).apply_async()
    assert result.get(timeout=60) == 3
    wait_for(lambda: effects.client.exists(f"died:{trap}"), 10, "the kill")
    wait_until_settled(redis_server, 20)
    assert len(effects.finished(result.id)) == 1
    # Its result is there: there is no reason to do the work again.
    assert [len(effects.runs(member)) for member in ids_of(result.parent)] == [1] * 3


TRAP = {"TRAP": "worker as it begins"}


@promise("poison-stops")
def test_a_map_that_kills_its_process_is_put_aside(
    soon: Project, effects: Effects, letters: DeadLetters
) -> None:
    """As often as what it carries may be lost; a `max_losses` of that counts for the map."""
    soon.start_worker("one")
    once = soon.task("kill_once").map([1]).apply_async()
    often = soon.task("kill_own").map([2]).apply_async()
    wait_for(lambda: letters.count() == 2, 60, "both are dead letters")
    assert {letter.task_id: letter.losses for letter in letters.list()} == {
        once.id: 1,
        often.id: 4,
    }
    assert effects.client.lrange("calls:kill", 0, -1).count(b"1") == 1


@promise("nothing-lost")
def test_the_body_of_a_chord_runs_though_the_worker_that_polls_for_it_is_killed(
    soon: Project, effects: Effects, tmp_path: Path
) -> None:
    """On a result backend that does not count members, if the body is reliable."""
    files = soon.with_settings(result_url=f"file://{tmp_path}")
    files.start_workers(*NAMES, environ=TRAP)
    result = chord([files.task("plain_one").s(n) for n in range(4)], files.task("add_up").s())()
    wait_for(lambda: effects.client.exists("died:worker chord_unlock"), 30, "the kill")
    assert result.get(timeout=60) == 6
    assert effects.client.lrange("bodies", 0, -1) == [result.id.encode()]


@promise("nothing-lost")
def test_a_task_that_became_a_group_ends_though_the_worker_that_gathers_it_is_killed(
    soon: Project, effects: Effects, redis_server: RedisServer
) -> None:
    soon.start_workers(*NAMES, environ=TRAP)
    result = soon.task("become_group").delay([1, 2, 3])
    wait_for(lambda: effects.client.exists("died:worker accumulate"), 30, "the kill")
    assert result.get(timeout=60) == [1, 2, 3]
    wait_until_settled(redis_server, 30)


def test_what_carries_plain_tasks_is_plain(
    soon: Project, redis_server: RedisServer, tmp_path: Path
) -> None:
    files = soon.with_settings(result_url=f"file://{tmp_path}")
    plain = files.task("plain_one")
    plain.map([1]).apply_async()
    chord([plain.s(1)], files.task("plain_add_up").s())()
    client = redis_server.client()
    assert client.llen("celery") == 3
    assert not client.keys(RECORD + "*")

    reliable = files.task("one").map([1]).apply_async()
    assert client.exists(RECORD + reliable.id)
    # Workers without the package know no other names.
    (message,) = map(json.loads, client.lrange("celery", 0, 0))
    assert message["headers"]["task"] == "celery.map"
