"""Requests and replies of a worker that are lost on the way: every step may be repeated."""

from __future__ import annotations

import pytest

from celery_reliable.ledger.scripts import script
from tests.integration.conftest import Project, Start
from tests.integration.figures import RECORD
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for


@promise("never-two")
@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
@pytest.mark.parametrize("step", ["claim", "settle"])
def test_a_lost_step_of_an_attempt_is_repeated_at_once(
    step: str, how: str, project: Project, proxy: RedisProxy
) -> None:
    behind_proxy = project.with_settings(broker_url=proxy.url())
    behind_proxy.start_worker("one")
    warm = project.send("work", 0.01)
    warm.get(timeout=10)
    rule = getattr(proxy, how)(script=script(step).sha, times=2)
    sent_at = project.effects.now()
    result = project.send("work", 0.01)
    client = project.redis.client()
    assert result.get(timeout=10) == "worked"
    wait_for(lambda: not client.exists(RECORD + result.id), 5, "settled")
    # Without waiting for a lease.
    assert project.effects.now() - sent_at < 5
    rule.wait(2)
    assert [run.attempt for run in project.effects.runs(result.id)] == [1]


@pytest.mark.parametrize("how", ["drop_request", "drop_reply"])
@pytest.mark.parametrize(
    ("step", "name", "arguments", "runs"),
    [
        ("bury", "failing", ["on purpose"], 1),
        ("record", "flaky", [1], 2),
        ("lose", "poison_times", [1], 2),
        ("lock", "locked", ["object", 0.01], 1),
    ],
)
def test_every_other_step_may_be_lost_too(
    step: str,
    name: str,
    arguments: list[object],
    runs: int,
    how: str,
    project: Project,
    proxy: RedisProxy,
    start_worker: Start,
) -> None:
    start_worker("one", project=project.with_settings(broker_url=proxy.url()))
    rule = getattr(proxy, how)(script=script(step).sha)
    result = project.send(name, *arguments)
    wait_for(lambda: result.ready(), 15, f"{name} ended")
    rule.wait()
    assert [run.attempt for run in project.effects.runs(result.id)] == list(range(1, runs + 1))
