"""Requests and replies of a worker that are lost on the way: every step may be repeated."""

from __future__ import annotations

import os
from itertools import product

import pytest

from celery_reliable.ledger.scripts import script
from tests.integration.conftest import TWO_QUEUES, Project
from tests.integration.figures import RECORD
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

WAYS = ("drop_request", "drop_reply")


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_SHIFTS")), reason="in shifts another script does all of this"
)
@promise("never-two")
def test_a_lost_step_of_an_attempt_is_repeated_at_once(project: Project, proxy: RedisProxy) -> None:
    # Of a single queue another script files and claims.
    project.with_settings(broker_url=proxy.url()).start_worker("one", options=TWO_QUEUES)
    project.send("work", 0.01).get(timeout=10)
    client = project.redis.client()
    for step, how in product(("claim", "settle"), WAYS):
        rule = getattr(proxy, how)(script=script(step).sha, times=2)
        sent_at = project.effects.now()
        result = project.send("work", 0.01)
        assert result.get(timeout=10) == "worked", (step, how)
        wait_for(lambda i=result.id: not client.exists(RECORD + i), 5, "settled")
        # Without waiting for a lease.
        assert project.effects.now() - sent_at < 5, (step, how)
        rule.wait(2)
        assert [run.attempt for run in project.effects.runs(result.id)] == [1], (step, how)
