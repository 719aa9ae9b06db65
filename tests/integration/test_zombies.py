"""Attempts that go on although another one has their task: cut off, or stuck in a thread."""

from __future__ import annotations

import os

import pytest
from celery import chord

from celery_reliable.ledger.scripts import script
from tests.integration.commands import Run
from tests.integration.conftest import Project
from tests.integration.figures import RECORD, WORKERS, passes_finish, record_of
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


@pytest.mark.skipif(
    bool(os.environ.get("TESTS_APART")), reason="elsewhere a result is compared with nothing"
)
@promise("late-changes-nothing", "results-best-effort")
@pytest.mark.parametrize("first", ["finish", "retry"])
def test_what_was_on_its_way_when_a_worker_was_cut_off_takes_no_results_place(
    project: Project, proxy: RedisProxy, first: str
) -> None:
    client = project.redis.client()
    client.script_load(script("store").text)
    behind = project.with_settings(broker_url=proxy.url(), result_url=proxy.url(1))
    behind.start_worker("one", concurrency=1)
    body = project.task("work").si(0.01).set(task_id="the-body")
    member = project.task("follow").s([first, "finish"]).set(task_id="the-member")
    # Celery looks for an older result first.
    way = proxy.stall_at(containing="celery-task-meta-the-member", nth=2)
    chord([member])(body)
    way.wait()
    project.start_worker("two", concurrency=1)
    result = project.app.AsyncResult("the-member")
    assert result.get(timeout=30) == "run 2"
    wait_for(lambda: project.effects.finished("the-body"), 10, "the body")

    with project.redis.client(1).pubsub(ignore_subscribe_messages=True) as told:
        told.subscribe("celery-task-meta-the-member")
        proxy.mend()
        wait_for(lambda: client.zcard(WORKERS) == 2, 20, "two leases")
        wait_for(lambda: not client.keys(RECORD + "*"), 15, "everything settled")
        assert not [one for _ in range(9) if (one := told.get_message(timeout=0.1))]
    assert result.result == "run 2"
    assert len(project.effects.runs("the-body")) == 1


@promise("never-two", "one-object")
def test_neither_its_object_nor_its_id_runs_beside_it(soon: Project, run: Run) -> None:
    """It is a dead letter, and discarded; its object and its id are published again."""
    soon.start_worker("one", pool="threads", concurrency=4)
    soon.send("stuck_for_good", "object", task_id="one")
    soon.effects.run_of("one")
    wait_for(
        lambda: record_of(soon.redis, "one").get("state") == "dead", 15, "it is taken as stuck"
    )
    assert run("dead-letters", "discard", "one", "--yes", project=soon).code == 0
    soon.effects.open_gate("two")
    other = soon.send("stuck_for_good", "object", task_id="two")
    soon.send("stuck_for_good", "object", task_id="one")
    passes_finish(soon.redis, 6, 20)

    assert not soon.effects.runs("two")
    assert len(soon.effects.runs("one")) == 1
    soon.effects.open_gate("one")

    assert other.get(timeout=30) == 1
    again = soon.effects.run_of("one", 2, timeout_seconds=30)
    assert again.attempt == 2
    ended_at = soon.effects.runs("one")[0].last_seen_at
    assert min(again.started_at, soon.effects.runs("two")[0].started_at) > ended_at
    # Nothing stays for ever of what has been stopped.
    client = soon.redis.client()
    for kind in ("task:*", "lock:*", "taken:*", "due"):
        wait_for(lambda k=kind: not client.keys("{reliable:0}:" + k), 30, f"nothing of {kind}")
