"""A task that a process has taken by itself, and that was taken from it before it could settle."""

from __future__ import annotations

import os

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.broker import take_next_text
from celery_reliable.ledger import answers
from celery_reliable.ledger.attempts import taking_script
from celery_reliable.ledger.scripts import script, together
from celery_reliable.model import Cause
from tests.integration.conftest import Project
from tests.integration.figures import record_of, wait_until_settled
from tests.integration.shifts import in_shift, start, with_shifts
from tests.support.proxy import RedisProxy

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        bool(os.environ.get("TESTS_APART")),
        reason="elsewhere than in the ledger nobody has a shift",
    ),
]

#: A task with an object, and which one.
WHAT = ("locked_retry_gate", "x")


def test_it_gives_its_object_back_before_the_task_runs_again(
    project: Project, proxy: RedisProxy
) -> None:
    pooled = with_shifts(project)
    start(pooled.with_settings(broker_url=proxy.url()))
    result, gate, _ = in_shift(pooled, what=WHAT)
    ledger = reliable_of(pooled.app).ledger
    record = ledger.find(result.id)
    assert record is not None
    # Its settlement, which goes with the next taking, does not arrive until the task is lost.
    both = together(script("settle"), taking_script(take_next_text()))
    rule = proxy.drop_request(script=both.sha, times=None)
    pooled.effects.open_gate(gate)
    rule.wait()
    lost = ledger.lose(record.claim, Cause.WORKER_LOST, max_losses=3, due_in_ms=300_000)
    assert isinstance(lost, answers.Queued)

    proxy.remove(rule)

    # For as long as the first waits, nobody else would have it.
    pooled.effects.open_gate("other")
    assert pooled.send(*WHAT, "other").get(timeout=30) == "x"
    assert record_of(pooled.redis, result.id)["state"] == "queued"
    ledger.revoke(result.id)
    wait_until_settled(pooled.redis, 20)
