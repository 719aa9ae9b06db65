"""Celery's own tasks that carry others: a killed worker loses nothing of what they carry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from celery import chord

from celery_reliable.operations.dead_letters import DeadLetters
from tests.integration.conftest import Project
from tests.integration.figures import RECORD, wait_until_settled
from tests.support.effects import Effects
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

NAMES = ("one", "two")
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
    """On a result backend that does not count members, if one of them or the body is reliable."""
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
