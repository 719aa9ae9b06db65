"""A worker whose user of Redis may not do what it has to: at its start, and while it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.conftest import Project, Start
from tests.integration.figures import RECORD
from tests.support.acl import granted
from tests.support.effects import Effects
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full

#: As long as a process waits for a right, at each of the steps with which it ends.
PATIENCE_SECONDS = 10.0


@pytest.fixture
def narrow(project: Project) -> Callable[..., Project]:
    """The project as the README's user, without some words of the rule."""

    def narrow(*without: str) -> Project:
        url = granted(project.redis.client(), without=without)
        return project.with_settings(broker_url=url, result_url=url)

    return narrow


@pytest.mark.parametrize(
    ("without", "names"),
    [
        ("+hscan", ["broker", "HSCAN"]),
        ("~{reliable:0}:*", ["ledger", "the key {reliable:0}:"]),
    ],
)
def test_what_is_missing_is_named_at_the_start(
    narrow: Callable[..., Project], start_worker: Start, without: str, names: list[str]
) -> None:
    worker = start_worker("one", project=narrow(without), wait=False)

    assert worker.wait_until_ended() != 0
    said = [line for line in worker.log_text().splitlines() if line.startswith("celery_reliable:")]
    assert len(said) == 1
    assert all(name in said[0] for name in names), said


def test_a_right_that_is_taken_away_loses_nothing(
    narrow: Callable[..., Project], effects: Effects, redis_server: RedisServer
) -> None:
    """What has ended keeps its claim, and is settled when that is allowed again; meanwhile its
    process goes on with something else.
    """
    project, admin = narrow(), redis_server.client()
    project.start_worker("one", concurrency=1)
    first = project.send("gate", "gate")
    effects.run_of(first.id)

    # No script can remove a record any more, so none can be settled.
    admin.execute_command("ACL", "SETUSER", "app", "-del")
    effects.open_gate("gate")
    second = project.send("work", 0)
    wait_for(lambda: effects.runs(second.id), 4 * PATIENCE_SECONDS, "the process goes on")
    assert first.state == "SUCCESS"
    assert all(admin.exists(record(one)) for one in (first, second))

    admin.execute_command("ACL", "SETUSER", "app", "+del")
    for one in (first, second):
        wait_for(lambda one=one: not admin.exists(record(one)), 30, "it is settled")
        assert len(effects.runs(one.id)) == 1


def record(result: Any) -> str:
    return RECORD + result.id
