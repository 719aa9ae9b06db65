"""Attempts that end without an outcome: their tasks run again, and not for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from celery import chord

from celery_reliable.ledger.scripts import script
from tests.conftest import StartRedis
from tests.integration.conftest import ONE_EACH, SOON, Project, Start
from tests.integration.figures import record_of, wait_until_settled
from tests.integration.project.ends import add_tasks
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.waiting import wait_for


def test_a_killed_childs_task_runs_again_within_two_seconds(
    project: Project, worker: Worker
) -> None:
    mate = project.send("gate", "mate")
    project.effects.run_of(mate.id)
    waited = []
    for turn in range(6):
        result = project.send("gate", f"gate-{turn}")
        worker.kill_child(project.effects.run_of(result.id).pid)
        killed_at = project.effects.now()
        wait_for(lambda r=result: len(project.effects.runs(r.id)) == 2, 10, "the second run")
        waited.append(project.effects.starts(result.id)[1] - killed_at)
        assert record_of(project.redis, result.id)["losses"] == "1"
        project.effects.open_gate(f"gate-{turn}")
        result.get(timeout=10)
    print("seconds from the child's death to the re-run:", [round(w, 2) for w in waited])
    assert max(waited) <= 2
    # The pool mate went on, and was charged nothing.
    assert "losses" not in record_of(project.redis, mate.id)
    project.effects.open_gate("mate")
    mate.get(timeout=10)
    assert len(project.effects.runs(mate.id)) == 1
    wait_until_settled(project.redis, 10)


@promise("poison-stops")
def test_poison_stops_after_max_losses_and_one_runs(
    project: Project, workers: dict[str, Worker]
) -> None:
    poison = project.send("poison")
    good = [project.send("work", 0.05) for _ in range(20)]
    for result in good:
        assert result.get(timeout=20) == "worked"
    wait_for(lambda: record_of(project.redis, poison.id).get("state") == "dead", 20, "buried")
    assert len(project.effects.runs(poison.id)) == 4
    assert [run.attempt for run in project.effects.runs(poison.id)] == [1, 2, 3, 4]
    wait_for(lambda: poison.state == "FAILURE", 5, "Celery was told")
    assert record_of(project.redis, poison.id)["reason"] == "lost"
    assert not project.effects.overlaps()
    assert all(len(project.effects.runs(r.id)) == 1 for r in good)


@promise("poison-stops")
def test_losses_and_retries_are_separate_budgets(project: Project, worker: Worker) -> None:
    steps = ["kill", "retry", "kill", "retry", "finish"]
    result = project.send("follow", steps, max_retries=2)
    assert result.get(timeout=30) == "run 5"
    assert [run.attempt for run in project.effects.runs(result.id)] == [1, 2, 3, 4, 5]
    wait_until_settled(project.redis, 10)


def test_a_chord_survives_a_killed_header(project: Project, worker: Worker) -> None:
    steps = project.task("follow")
    body = project.task("work").si(0.01)
    result = chord([steps.s(["kill", "finish"]), steps.s(["finish"])], body).apply_async()
    assert result.get(timeout=20) == "worked"


def test_a_child_that_dies_while_redis_does_not_answer_is_not_forgotten(
    project: Project, start: Start
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1, "QUEUED_SECONDS": 14})
    worker = start(project=project, concurrency=1, options=ONE_EACH)
    result = project.send("gate", "gate")
    first = project.effects.run_of(result.id)
    project.redis.freeze()
    worker.kill_child(first.pid)
    killed_at = project.effects.now()
    # Longer than the main process waits for an answer; less than a lease.
    wait_for(lambda: project.effects.now() - killed_at > 7.5, 10, "the outage to last")
    project.redis.thaw()
    project.effects.open_gate("gate")
    # The one prefetch slot is free again, so others run too.
    assert project.send("work", 0.01).get(timeout=15) == "worked"
    assert project.effects.run_of(result.id, 2, timeout_seconds=25).attempt == 2
    assert result.get(timeout=10) == "gate"
    client = project.redis.client()
    wait_for(lambda: not client.keys("unacked:*"), 10, "its message acknowledged")
    wait_for(lambda: not record_of(project.redis, result.id), 5, "its record gone")


@promise("poison-stops")
def test_poison_is_buried_while_the_result_backend_is_away_and_announced_when_it_is_back(
    project: Project, start: Start, start_redis: StartRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = start_redis()
    once = {"max_retries": 1, "interval_start": 0, "interval_step": 0.1}
    project = project.with_settings(
        result_url=results.url(),
        reliable={"MAX_LOSSES": 0, "QUEUED_SECONDS": 16},
        celery={"result_backend_transport_options": {"retry_policy": once}},
    )
    start(project=project, concurrency=1, options=ONE_EACH)
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


@promise("late-changes-nothing")
def test_a_burial_that_may_not_have_been_told_is_told_again_in_the_same_name(
    project: Project, start: Start
) -> None:
    """So who reads results can tell the repetition from another outcome."""

    def stored() -> dict[str, Any]:
        return json.loads(client.get(f"celery-task-meta-{poison.id}") or "{}")

    with RedisProxy(project.redis.port) as proxy, project.redis.client() as client:
        behind = project.with_settings(
            broker_url=proxy.url(),
            result_url=project.redis.url(),
            reliable={**SOON, "MAX_LOSSES": 0},
        )
        rule = proxy.drop_request(script=script("announce").sha, times=None)
        start(project=behind, concurrency=1)
        poison = behind.send("poison")
        first = wait_for(stored, 20, "FAILURE")
        wait_for(lambda: stored()["date_done"] != first["date_done"], 60, "FAILURE, once more")
        proxy.remove(rule)
        wait_for(lambda: "owed" not in record_of(project.redis, poison.id), 40, "it is announced")
        assert stored()["status"] == first["status"] == "FAILURE"
        assert stored()["reliable"] == first["reliable"]
    assert len(project.effects.runs(poison.id)) == 1


@promise("nothing-lost")
def test_a_task_runs_again_though_its_hook_raised_as_the_lost_connection_stopped_it(
    project: Project, start: Start
) -> None:
    """Celery calls the hook after the stop, and before it notes why it stopped the task."""
    project = project.with_settings(
        celery={"worker_cancel_long_running_tasks_on_connection_loss": True}
    )
    add_tasks(project.app)
    start(project=project, concurrency=1, pool="prefork")
    result = project.send("retried_badly", "gate")
    project.effects.run_of(result.id)
    with project.redis.client() as client:
        # Workers receive remote commands on it.
        client.client_kill_filter(_type="pubsub")
    assert project.effects.run_of(result.id, 2, timeout_seconds=60).attempt == 2
    project.effects.open_gate("gate")
    assert result.get(timeout=20) == "gate"
    assert not project.effects.overlaps()


@promise("nothing-lost")
def test_a_task_runs_once_its_object_is_free_though_it_could_not_publish_itself_again(
    ending: Project, start: Start
) -> None:
    start()
    first = ending.send("unpublished_object", "object", "first")
    ending.effects.run_of(first.id)
    second = ending.send("unpublished_object", "object", "second")
    wait_for(lambda: record_of(ending.redis, second.id).get("losses"), 20, "its first loss")
    ending.effects.open_gate("first")
    ending.effects.open_gate("second")
    assert second.get(timeout=30) == "object"
