"""What the worker's main process does for an attempt whose own process cannot: real kills, real
limits, real outages.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from uuid import uuid4

import pytest
import redis

from tests.conftest import StartRedis
from tests.integration.conftest import Project, Start
from tests.integration.project.parents import add_tasks
from tests.support.effects import Effects, Run
from tests.support.processes import Worker
from tests.support.promises import promise
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

ONE_EACH = ("--prefetch-multiplier", "1")
RECORD = "{reliable:0}:task:"
LOCKS = "{reliable:0}:lock:*"


@pytest.fixture
def start(project: Project, start_worker: Start) -> Start:
    """Start a worker of concurrency 2 that knows the tasks of this module's project."""
    add_tasks(project.app)

    def one(name: str = "one", **options: object) -> Worker:
        return start_worker(name, app="tests.integration.project.parents", **options)

    return one


def run_of(effects: Effects, task_id: str, number: int = 1, seconds: float = 15) -> Run:
    """The run of that number, once it has begun."""
    wait_for(lambda: len(effects.runs(task_id)) >= number, seconds, f"run {number} of {task_id}")
    return effects.runs(task_id)[number - 1]


def ticking_run_of(effects: Effects, task_id: str) -> Run:
    """The first run, once it has given a sign of life from within its body."""
    run_of(effects, task_id)

    def ticking() -> Run | None:
        first = effects.runs(task_id)[0]
        return first if first.alive_at > first.started_at else None

    return wait_for(ticking, 5, "a sign of life")  # type: ignore[return-value]


def record(redis_server: RedisServer, task_id: str) -> dict[str, str]:
    """The task's record as it stands in Redis."""
    raw = redis_server.client().hgetall(RECORD + task_id)
    return {k.decode(): v.decode("utf-8", "replace") for k, v in raw.items()}


def foreign_message(
    task_id: str, body: object, task: str = "project.work", **properties: str
) -> str:
    """A message of a task as a producer of another language may put it into a queue."""
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps(body).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"task": task, "id": task_id, "lang": "js"},
            "properties": {
                "correlation_id": task_id,
                "delivery_mode": 2,
                "delivery_tag": str(uuid4()),
                "delivery_info": {"exchange": "", "routing_key": "celery"},
                "body_encoding": "base64",
                "priority": 0,
                **properties,
            },
        }
    )


@pytest.mark.parametrize("expiration", ["60000.0", "soon", "nan"])
def test_a_foreign_expiration_ends_no_worker(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer, expiration: str
) -> None:
    one = start()
    message = foreign_message("foreign", [[0.01], {}, {}], expiration=expiration)
    redis_server.client().lpush("celery", message)
    wait_for(lambda: effects.finished("foreign") or not one.is_running, 10, "it ran")
    assert one.is_running
    assert project.send("work", 0.01).get(timeout=10) == "worked"
    assert len(effects.runs("foreign")) == 1


def test_a_body_of_another_shape_ends_no_worker(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    one = start()
    redis_server.client().lpush("celery", foreign_message("foreign", [[0.01]]))
    result = project.send("work", 0.01)
    wait_for(lambda: effects.finished(result.id) or not one.is_running, 10, "the next one ran")
    assert one.is_running
    assert not effects.runs("foreign")


def test_a_foreign_task_that_kills_its_process_after_its_success_does_not_run_again(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start(concurrency=1, options=ONE_EACH)
    client = redis_server.client()
    client.lpush("celery", foreign_message("foreign", [[], {}, {}], "project.fatal"))
    run_of(effects, "foreign")
    # One that runs again goes behind others.
    for _ in range(3):
        assert project.send("work", 0.01).get(timeout=15) == "worked"
    wait_for(lambda: not client.keys("unacked:*"), 15, "every message acknowledged")
    assert not record(redis_server, "foreign")
    assert project.app.AsyncResult("foreign").state == "SUCCESS"
    assert len(effects.runs("foreign")) == 1


def test_a_child_that_dies_while_redis_does_not_answer_is_not_forgotten(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1, "QUEUED_SECONDS": 14})
    start(project=project, concurrency=1, options=ONE_EACH)
    result = project.send("gate", "gate")
    first = run_of(effects, result.id)
    redis_server.freeze()
    os.kill(first.pid, signal.SIGKILL)
    killed_at = effects.now()
    # Longer than the main process waits for an answer; less than a lease.
    wait_for(lambda: effects.now() - killed_at > 7.5, 10, "the outage to last")
    redis_server.thaw()
    effects.open_gate("gate")
    # The one prefetch slot is free again, so others run too.
    assert project.send("work", 0.01).get(timeout=15) == "worked"
    assert run_of(effects, result.id, 2, 25).attempt == 2
    assert result.get(timeout=10) == "gate"
    client = redis_server.client()
    wait_for(lambda: not client.keys("unacked:*"), 10, "its message acknowledged")
    wait_for(lambda: not record(redis_server, result.id), 5, "its record gone")


@promise("poison-stops")
def test_poison_is_buried_while_the_result_backend_is_away_and_announced_when_it_is_back(
    project: Project,
    start: Start,
    start_redis: StartRedis,
    effects: Effects,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
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
    assert wait_for(lambda: effects.client.get(told), 5, "the signal") == b"1"
    results.kill()
    # Whoever publishes would subscribe to the result first.
    monkeypatch.setattr(type(project.app.backend), "on_task_call", lambda *_: None)
    poison = project.app.send_task("project.poison", ignore_result=False)
    wait_for(lambda: record(redis_server, poison.id).get("state") == "dead", 20, "buried")
    # The one prefetch slot is free again.
    plain = project.send("plain_work", 0.01, ignore_result=True)
    wait_for(lambda: effects.finished(plain.id), 20, "the next one ran")
    assert record(redis_server, poison.id)["owed"] == "1"
    results.start()
    wait_for(lambda: "owed" not in record(redis_server, poison.id), 40, "announced")
    assert poison.state == "FAILURE"
    # The sweeper tells whom the main process would have told.
    wait_for(lambda: effects.client.get(f"task_failure:{poison.id}"), 5, "the signal")
    assert len(effects.runs(poison.id)) == 1


@promise("one-object")
def test_no_task_of_the_object_starts_while_one_beyond_its_limit_still_runs(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    for name in ("one", "two"):
        start(name)
    first = project.send("limited_object", "object")
    run_of(effects, first.id)
    wait_for(lambda: record(redis_server, first.id).get("state") == "dead", 15, "buried")
    second = project.send("limited_object", "object")
    run_of(effects, second.id)
    wait_for(lambda: record(redis_server, second.id).get("state") == "dead", 15, "buried")
    assert not effects.overlaps("object")
    assert record(redis_server, first.id)["reason"] == "time_limit"
    # After its record, by a step of its own.
    wait_for(lambda: not redis_server.client().keys(LOCKS), 5, "the lock is freed")


def test_a_failure_that_takes_long_to_tell_is_no_orphan(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    project = project.with_settings(reliable={"SWEEP_SECONDS": 1})
    add_tasks(project.app)
    for name in ("one", "two"):
        start(name, project=project)
    result = project.send("limited_slowly")
    wait_for(lambda: result.state == "FAILURE", 15, "FAILURE")
    # Two receivers' times: Celery tells a hard limit twice.
    wait_for(lambda: effects.client.get("failures-told") == b"2", 30, "both are told")
    wait_for(lambda: record(redis_server, result.id).get("state") == "dead", 10, "buried")
    assert record(redis_server, result.id)["reason"] == "time_limit"
    assert [run.attempt for run in effects.runs(result.id)] == [1]


@promise("one-object")
@pytest.mark.parametrize("name", ["stubborn_object", "unwinding_object"])
def test_a_terminated_task_keeps_its_object_until_it_has_really_ended(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer, name: str
) -> None:
    start()
    first = project.send(name, "object", 4.0)
    ticking_run_of(effects, first.id)
    first.revoke(terminate=True)
    wait_for(lambda: first.state == "REVOKED", 10, "REVOKED")
    second = project.send(name, "object", 0.01)
    assert second.get(timeout=30) == "object"
    assert not effects.overlaps("object")
    assert len(effects.runs(first.id)) == 1
    client = redis_server.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "every record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock is freed")
    wait_for(lambda: not client.keys("unacked:*"), 10, "every message acknowledged")


def test_a_terminated_task_that_is_killed_frees_its_object_at_once(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start()
    first = project.send("stubborn_object", "object", 60.0)
    ticking_run_of(effects, first.id)
    first.revoke(terminate=True, signal="SIGKILL")
    client = redis_server.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 5, "the record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock freed")
    assert project.send("stubborn_object", "object", 0.01).get(timeout=10) == "object"
    assert len(effects.runs(first.id)) == 1


def test_a_terminated_task_that_its_time_limit_ends_is_no_dead_letter(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start()
    result = project.send("limited_object", "object")
    run = ticking_run_of(effects, result.id)
    result.revoke(terminate=True)
    client = redis_server.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 15, "the record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock freed")
    assert client.zcard("{reliable:0}:dead") == 0
    # It did not mind the signal: the limit ended it, and only then it was over.
    assert effects.runs(result.id)[0].alive_at - run.started_at > 1.5


def test_tasks_that_are_stopped_as_the_connection_is_lost_are_charged_nothing(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    project = project.with_settings(
        reliable={"MAX_LOSSES": 0},
        celery={"worker_cancel_long_running_tasks_on_connection_loss": True},
    )
    start(project=project)
    result = project.send("gate", "gate")
    client = redis_server.client()
    for number in (1, 2):
        run_of(effects, result.id, number, 30)
        (waiting,) = [one for one in client.client_list() if one["cmd"] == "brpop"]
        client.client_kill_filter(_id=waiting["id"])
    again = run_of(effects, result.id, 3, 30)
    assert again.attempt == 3
    assert "losses" not in record(redis_server, result.id)
    effects.open_gate("gate")
    assert result.get(timeout=10) == "gate"
    assert not effects.overlaps()
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "every record gone")


def left_queued(
    start: Start, project: Project, effects: Effects, client: redis.Redis, **options: object
) -> str:
    """Send a task that holds an object, and stop its worker coldly; return its id."""
    one = start("one", project=project)
    result = project.send("locked_gate", "object", "gate", **options)
    run_of(effects, result.id)
    one.signal_main(signal.SIGQUIT)
    one.wait_until_ended()
    assert client.keys(LOCKS)
    return result.id


def test_a_task_that_is_revoked_after_its_release_leaves_no_lock(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    task_id = left_queued(start, project, effects, client)
    # Held up, so that the worker hears of the revocation while nobody runs the task.
    message = client.rpop("celery")
    assert message is not None
    client.zincrby("{reliable:0}:due", 60_000, task_id)
    start("two", project=project)
    (answer,) = project.app.control.revoke(task_id, reply=True, timeout=10)
    assert "ok" in next(iter(answer.values()))
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "the record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock gone")
    assert len(effects.runs(task_id)) == 1


def test_a_task_that_expires_after_its_release_leaves_no_lock(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer
) -> None:
    client = redis_server.client()
    task_id = left_queued(start, project, effects, client, expires=6)
    (began_at,) = effects.starts(task_id)
    wait_for(lambda: effects.now() - began_at > 6, 10, "its expiry")
    start("two", project=project)
    wait_for(lambda: not client.keys(RECORD + "*"), 10, "the record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock gone")
    assert len(effects.runs(task_id)) == 1


@pytest.mark.parametrize("victim", ["child", "node"])
def test_a_success_whose_process_died_leaves_no_lock(
    project: Project, start: Start, effects: Effects, redis_server: RedisServer, victim: str
) -> None:
    workers = [start(name) for name in ("one", "two")]
    result = project.send("kept_object", "object")
    wait_for(lambda: result.state == "SUCCESS", 15, "SUCCESS")
    run = effects.runs(result.id)[0]
    client = redis_server.client()
    assert client.keys(LOCKS)
    if victim == "child":
        os.kill(run.pid, signal.SIGKILL)
    else:
        next(one for one in workers if run.worker.startswith(one.name)).kill_group()
    wait_for(lambda: not client.keys(RECORD + "*"), 20, "the record gone")
    wait_for(lambda: not client.keys(LOCKS), 5, "the lock gone")
    assert len(effects.runs(result.id)) == 1
