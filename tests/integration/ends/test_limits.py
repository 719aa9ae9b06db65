"""Limits of time and of rate: what they end has ended once."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.conftest import Project
from tests.integration.ends.ways import (
    GONE,
    End,
    assert_none_comes_back,
    wait_for_ends,
    wait_until_only_ends_are_left,
)
from tests.integration.figures import DEAD, record_of
from tests.integration.shifts import POOL, with_shifts
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_a_soft_limit_that_comes_too_late_for_the_body_changes_nothing(
    apart: Project, results: RedisServer
) -> None:
    worker = apart.start_worker("one")
    result = apart.send("locked_gate", "object", "gate", soft_time_limit=4)
    began_at = apart.effects.run_of(result.id).started_at
    results.stop()
    apart.effects.open_gate("gate")
    wait_for(lambda: apart.effects.finished(result.id), 10, "the end of its body")
    assert apart.effects.now() - began_at < 4

    # It comes while the outcome waits for the result backend.
    wait_for(lambda: apart.effects.now() - began_at > 5, 10, "the limit")
    results.start()

    ends = {result.id: End(GONE, "SUCCESS")}
    wait_for_ends(apart, ends)
    wait_until_only_ends_are_left(apart.redis, 0)
    assert_none_comes_back(apart, worker, ends)


@pytest.mark.parametrize("pool", ["prefork", POOL])
def test_a_hard_limit_reports_a_failure_once_and_none_of_a_task_that_has_ended(
    project: Project, pool: str
) -> None:
    if pool == POOL:
        project = with_shifts(project)
    project.start_worker("one", concurrency=1, pool="" if pool == POOL else pool)
    link, errback = project.task("listed").si(None), project.task("add").si(1, 1)
    ended = project.send("finished_late", link=link, link_error=errback)
    over = project.send("ending", "sleep", time_limit=1, link_error=project.task("total").si([1]))

    def counted() -> Counter[str]:
        return Counter(run.task.removeprefix("project.") for run in project.effects.runs())

    wait_for(lambda: counted()["total"], 60, "the errback")
    assert record_of(project.redis, over.id)["state"] == "dead"
    # All that was published before it has run by then.
    assert project.send("work", 0.01).get(timeout=60) == "worked"

    assert ended.state == "SUCCESS"
    counts = counted()
    assert counts == dict.fromkeys(("finished_late", "listed", "ending", "total", "work"), 1)
    assert project.redis.client().zcard(DEAD) == 1
