"""What a worker that cannot work says: one paragraph, with what to change, and it does not
start.
"""

from __future__ import annotations

import pytest

from tests.conftest import StartRedis
from tests.integration.conftest import Project
from tests.integration.figures import RECORD, refusal
from tests.support.acl import granted
from tests.support.effects import Effects
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for


def test_a_redis_that_is_not_there_and_is_not_waited_for(project: Project) -> None:
    url = f"redis://:secret@127.0.0.1:{project.redis.port}/0"
    project.redis.stop()
    impatient = project.with_settings(
        reliable={"REDIS_URL": url}, celery={"broker_connection_retry_on_startup": False}
    )
    said = refusal(impatient.start_worker(wait=False))
    assert str(project.redis.port) in said
    assert "REDIS_URL" in said
    assert "secret" not in said


def test_a_list_of_brokers_with_a_ledger_elsewhere(
    project: Project, start_redis: StartRedis
) -> None:
    first, second = start_redis(), start_redis()
    listed = project.with_settings(
        broker_url=f"{first.url()};{second.url()}",
        reliable={"REDIS_URL": project.redis.url()},
    )
    first.stop()
    worker = listed.start_worker("one")
    assert listed.send("work", 0.01).get(timeout=20) == "worked"
    # What a pass sends goes to the one that is there, too.
    parked = listed.send("work", 0.01, countdown=1)
    assert parked.get(timeout=20) == "worked"
    assert worker.is_running


#: As long as a process waits for a right, at each of the steps with which it ends.
PATIENCE_SECONDS = 10.0


def narrow(project: Project, *without: str) -> Project:
    """The project as the README's user, without some words of the rule."""
    url = granted(project.redis.client(), without=without)
    return project.with_settings(broker_url=url, result_url=url)


@pytest.mark.full
@pytest.mark.parametrize(
    ("without", "names"),
    [
        ("+zrem", ["ledger", "zrem", "ACL SETUSER"]),
        ("~{reliable:0}:*", ["ledger", "access a key", "ACL SETUSER"]),
    ],
)
def test_what_is_missing_is_named_at_the_start(
    project: Project, without: str, names: list[str]
) -> None:
    said = refusal(narrow(project, without).start_worker("one", wait=False))
    assert all(name in said for name in names), said


@pytest.mark.full
def test_a_right_that_is_taken_away_loses_nothing(
    project: Project, effects: Effects, redis_server: RedisServer
) -> None:
    """What has ended keeps its claim, and is settled when that is allowed again; meanwhile its
    process goes on with something else.
    """
    project, admin = narrow(project), redis_server.client()
    project.start_worker("one", concurrency=1)
    first = project.begin("gate", "gate")

    # No script can remove a record any more, so none can be settled.
    admin.execute_command("ACL", "SETUSER", "app", "-del")
    effects.open_gate("gate")
    second = project.send("work", 0)
    wait_for(lambda: effects.runs(second.id), 4 * PATIENCE_SECONDS, "the process goes on")
    assert first.state == "SUCCESS"
    assert all(admin.exists(RECORD + one.id) for one in (first, second))

    admin.execute_command("ACL", "SETUSER", "app", "+del")
    for one in (first, second):
        wait_for(lambda one=one: not admin.exists(RECORD + one.id), 30, "it is settled")
        assert len(effects.runs(one.id)) == 1
