"""Attempts that end without an outcome: their tasks run again, and not for ever."""

from __future__ import annotations

import pytest
from celery import chord

from tests.conftest import StartRedis
from tests.integration.conftest import ONE_EACH, Project
from tests.integration.figures import record_of
from tests.support.promises import promise
from tests.support.waiting import wait_for

pytestmark = pytest.mark.full


def test_a_chord_survives_a_killed_header(shared: Project) -> None:
    steps = shared.task("follow")
    body = shared.task("work").si(0.01)
    result = chord([steps.s(["kill", "finish"]), steps.s(["finish"])], body).apply_async()
    assert result.get(timeout=20) == "worked"


@promise("poison-stops")
def test_poison_is_buried_while_the_result_backend_is_away_and_announced_when_it_is_back(
    project: Project, start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = start_redis()
    once = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1}
    project = project.with_settings(
        result_url=results.url(),
        reliable={"MAX_LOSSES": 0, "QUEUED_SECONDS": 16},
        celery={"result_backend_transport_options": {"retry_policy": once}},
    )
    project.start_worker("one", concurrency=1, options=ONE_EACH)
    poison = project.send("poison")
    # Where the main process was in a hurry, the sweeper tells it, after QUEUED_SECONDS.
    wait_for(lambda: poison.state == "FAILURE", 40, "FAILURE")
    # The result comes first.
    told = f"task_failure:{poison.id}"
    assert wait_for(lambda: project.effects.client.get(told), 5, "the signal") == b"1"
    results.kill()
    # Whoever publishes would subscribe to the result first.
    monkeypatch.setattr(type(project.app.backend), "on_task_call", lambda *_: None)
    poison = project.app.send_task("project.poison", ignore_result=False)
    wait_for(lambda: record_of(project.redis, poison.id).get("state") == "dead", 20, "buried")
    # The one prefetch slot is free again.
    plain = project.send("plain_work", 0.01, ignore_result=True)
    wait_for(lambda: project.effects.finished(plain.id), 20, "the next one ran")
    assert record_of(project.redis, poison.id)["owed"] == "1"
    results.start()
    wait_for(lambda: "owed" not in record_of(project.redis, poison.id), 40, "announced")
    assert poison.state == "FAILURE"
    # The sweeper tells whom the main process would have told.
    wait_for(lambda: project.effects.client.get(f"task_failure:{poison.id}"), 5, "the signal")
    assert len(project.effects.runs(poison.id)) == 1


@promise("nothing-lost")
def test_a_task_runs_again_though_its_hook_raised_as_the_lost_connection_stopped_it(
    project: Project,
) -> None:
    """Celery calls the hook after the stop, and before it notes why it stopped the task."""
    project = project.with_settings(
        celery={"worker_cancel_long_running_tasks_on_connection_loss": True}
    )
    project.start_worker("one", concurrency=1, pool="prefork")
    result = project.begin("retried_badly", "gate")
    with project.redis.client() as client:
        # Workers receive remote commands on it.
        client.client_kill_filter(_type="pubsub")
    assert project.effects.run_of(result.id, 2, timeout_seconds=60).attempt == 2
    project.effects.open_gate("gate")
    assert result.get(timeout=20) == "gate"
    assert not project.effects.overlaps()


@promise("nothing-lost")
def test_a_task_runs_once_its_object_is_free_though_it_could_not_publish_itself_again(
    ending: Project,
) -> None:
    ending.start_worker("one")
    ending.begin("unpublished_object", "object", "first")
    second = ending.send("unpublished_object", "object", "second")
    wait_for(lambda: record_of(ending.redis, second.id).get("losses"), 20, "its first loss")
    ending.effects.open_gate("first")
    ending.effects.open_gate("second")
    assert second.get(timeout=30) == "object"
