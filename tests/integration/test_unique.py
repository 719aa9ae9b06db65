"""`unique="queued"`: one of many calls is published, and all are answered with its result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from billiard.exceptions import TimeLimitExceeded
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from celery.signals import before_task_publish

from celery_reliable import LedgerUnavailable, ObjectBusy
from celery_reliable.ledger.scripts import script
from celery_reliable.purging import purge
from tests.conftest import Scale, StartRedis
from tests.integration.conftest import SOON, Project, Start
from tests.integration.figures import RECORD, wait_until_settled
from tests.integration.project import timed
from tests.integration.project.tasks import Broken
from tests.support.effects import Effects
from tests.support.processes import REPOSITORY
from tests.support.promises import promise
from tests.support.proxy import RedisProxy
from tests.support.redis_server import RedisServer
from tests.support.waiting import wait_for

LOCKS = "{reliable:0}:lock:*"
RESULTS = "celery-task-meta-*"

Caller = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def soon(project: Project) -> Project:
    """The project, which looks soon after what nobody has begun."""
    return project.with_settings(reliable=SOON)


def left_over(redis_server: RedisServer) -> list[bytes]:
    """What is kept of tasks and objects; not of who has published, which is forgotten by itself."""
    keys: list[bytes] = redis_server.client().keys("{reliable:0}:*:*")  # type: ignore[assignment]
    return [key for key in keys if b":sent:" not in key]


@pytest.fixture
def start_caller() -> Iterator[Caller]:
    """Start a process that calls a task: `start_caller(project, name, object, threads, calls)`."""
    started = []

    def start(project: Project, *arguments: object) -> subprocess.Popen[bytes]:
        caller = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.calling", *map(str, arguments)],
            cwd=REPOSITORY,
            env=project.environ("", {}),
        )
        started.append(caller)
        return caller

    yield start
    for caller in started:
        caller.kill()
        caller.wait()


def is_free(redis_server: RedisServer) -> None:
    """Wait until every task has ended, and no object is held."""
    client = redis_server.client()
    wait_for(lambda: not client.keys(RECORD + "*"), 20, "every task settled")
    wait_for(lambda: not client.keys(LOCKS), 5, "no object held")


def running(effects: Effects, task_id: str, number: int = 1) -> None:
    """Wait for a run of this task."""
    wait_for(lambda: len(effects.runs(task_id)) >= number, 20, f"run {number} of {task_id}")


@promise("one-object")
def test_one_of_fifty_calls_runs_and_all_have_its_result(
    project: Project,
    start_worker: Start,
    start_caller: Caller,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    start_worker("one")
    callers = [
        start_caller(project, "unique", "object", threads, calls, "gate:gate")
        for threads, calls in ((4, 5), (20, 1))
    ]
    with ThreadPoolExecutor(5) as threads:
        results = list(
            threads.map(lambda _: project.send("unique", "object", ["gate:gate"]), range(10))
        )
    assert [caller.wait(60) for caller in callers] == [0, 0]
    called = [one.decode() for one in effects.client.lrange("called", 0, -1)]
    assert len(called + results) == 50
    (task_id,) = {*called, *(result.id for result in results)}
    assert redis_server.client().keys(RECORD + "*") == [(RECORD + task_id).encode()]
    effects.open_gate("gate")
    assert {result.get(timeout=20) for result in results} == {"run 1"}
    is_free(redis_server)
    assert [run.task_id for run in effects.runs()] == [task_id]
    with redis_server.client(1) as stored:
        assert len(stored.keys(RESULTS)) == 1
    wait_until_settled(redis_server, 5)


def test_the_next_call_after_the_end_is_another_task(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start_worker("one")
    ids = set()
    for _ in range(3):
        result = project.send("unique", "object")
        assert result.get(timeout=10) == "run 1"
        ids.add(result.id)
        is_free(redis_server)
    assert len(ids) == len(effects.runs()) == 3


def test_what_stores_no_result_frees_its_object_too(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start_worker("one")
    result = project.send("unique", "object", ignore_result=True)
    running(effects, result.id)
    is_free(redis_server)


def test_what_was_subscribed_for_a_call_that_was_withdrawn_is_given_up(
    project: Project, redis_server: RedisServer
) -> None:
    first = project.send("unique", "object")
    backend = project.app.backend
    before = set(backend.result_consumer.subscribed_to)
    second = project.send("unique", "object", task_id="withdrawn")
    assert second.id == first.id
    assert not redis_server.client().exists(RECORD + "withdrawn")
    assert set(backend.result_consumer.subscribed_to) == before
    # Asking for a result by its id is no call.
    assert project.task("unique").AsyncResult("withdrawn").id == "withdrawn"


def test_what_is_published_beside_a_unique_call_is_no_part_of_it(
    project: Project, redis_server: RedisServer
) -> None:
    def publish_another(sender: str, **_: object) -> None:
        if sender == "project.unique":
            project.send("locked", "object", 0.01)

    before_task_publish.connect(publish_another)
    try:
        ids = {project.send("unique", "object").id for _ in range(2)}
    finally:
        before_task_publish.disconnect(publish_another)
    client = redis_server.client()
    assert len(ids) == 1
    assert len(client.keys(RECORD + "*")) == 3
    assert len(client.keys(LOCKS)) == 1


def test_a_call_from_a_task_leaves_the_first_ones_result_in_its_trail(
    project: Project, start_worker: Start, effects: Effects
) -> None:
    start_worker("one")
    first = project.send("unique", "object", ["gate:gate"])
    running(effects, first.id)
    caller = project.send("call", "unique", ["object"])
    assert caller.get(timeout=10) == first.id
    assert [child.id for child in caller.children] == [first.id]
    effects.open_gate("gate")
    assert first.get(timeout=10) == "run 1"


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_caller_is_killed_before_it_has_the_object(
    soon: Project,
    proxy: RedisProxy,
    start_worker: Start,
    start_caller: Caller,
    effects: Effects,
    redis_server: RedisServer,
    is_overtaken: bool,
) -> None:
    behind_proxy = soon.with_settings(broker_url=proxy.url())
    rule = proxy.drop_request(script=script("lock").sha, times=None)
    caller = start_caller(behind_proxy, "unique", "object", 1, 1)
    rule.wait(timeout_seconds=30)
    caller.kill()
    caller.wait()
    client = redis_server.client()
    (key,) = client.keys(RECORD + "*")
    task_id = key.decode().removeprefix(RECORD)
    assert not client.keys(LOCKS)
    second = soon.send("unique", "object", ["gate:gate"]) if is_overtaken else None
    start_worker("one", project=soon)
    if second is None:
        # It is sent from its record.
        running(effects, task_id)
    else:
        assert second.id != task_id
        running(effects, second.id)
        wait_for(lambda: not client.exists(key), 20, "it was sent, and skipped")
        effects.open_gate("gate")
        assert second.get(timeout=10) == "run 1"
    is_free(redis_server)
    assert len(effects.runs()) == 1


def test_a_caller_is_killed_before_it_has_sent(
    soon: Project,
    proxy: RedisProxy,
    start_worker: Start,
    start_caller: Caller,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    # The broker is silent to the caller, and the ledger is not.
    behind_proxy = soon.with_settings(
        broker_url=proxy.url(), reliable={**SOON, "REDIS_URL": redis_server.url()}
    )
    proxy.stall()
    caller = start_caller(behind_proxy, "unique", "object", 1, 1, "gate:gate")
    client = redis_server.client()
    wait_for(lambda: client.keys(LOCKS), 30, "it has the object")
    caller.kill()
    caller.wait()
    first = soon.send("unique", "object")
    assert client.keys(RECORD + "*") == [(RECORD + first.id).encode()]
    assert client.llen("celery") == 0
    start_worker("one", project=soon)
    running(effects, first.id)
    assert soon.send("unique", "object").id == first.id
    effects.open_gate("gate")
    assert first.get(timeout=10) == "run 1"
    is_free(redis_server)
    assert [run.task_id for run in effects.runs()] == [first.id]


@promise("one-object")
@pytest.mark.parametrize("victim", ["child", "node"])
def test_a_lost_task_has_its_object_until_it_has_run_again(
    soon: Project, start_worker: Start, effects: Effects, redis_server: RedisServer, victim: str
) -> None:
    worker = start_worker("one", project=soon)
    first = soon.send("unique", "object", ["gate:first", "gate:second"])
    running(effects, first.id)
    if victim == "node":
        worker.kill_group()
        assert soon.send("unique", "object").id == first.id
        start_worker("two", project=soon)
    else:
        os.kill(effects.runs(first.id)[0].pid, signal.SIGKILL)
    assert soon.send("unique", "object").id == first.id
    running(effects, first.id, 2)
    assert soon.send("unique", "object").id == first.id
    effects.open_gate("second")
    assert first.get(timeout=10) == "run 2"
    is_free(redis_server)
    assert [run.attempt for run in effects.runs()] == [1, 2]


@pytest.mark.parametrize("step", ["retry", "reject"])
def test_who_comes_again_keeps_its_object(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer, step: str
) -> None:
    start_worker("one")
    client = redis_server.client()
    first = project.send("unique", "object", [step, "gate:gate"], 4)

    def waits_for_its_second_turn() -> bool:
        state, attempt = client.hmget(RECORD + first.id, "state", "attempt")
        return (state, attempt) == (b"queued", b"1")

    wait_for(waits_for_its_second_turn, 10, "it was queued again")
    assert project.send("unique", "object").id == first.id
    assert len(effects.runs()) == 1
    running(effects, first.id, 2)
    assert project.send("unique", "object").id == first.id
    effects.open_gate("gate")
    assert first.get(timeout=10) == "run 2"
    is_free(redis_server)
    assert len(effects.runs()) == 2


@pytest.mark.parametrize("links", [1, 3])
def test_what_replaces_itself_leaves_its_object(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer, links: int
) -> None:
    start_worker("one")
    assert project.send("unique_replaced", "object", links).get(timeout=10) == links + 1
    is_free(redis_server)


@pytest.mark.parametrize(("step", "losses"), [("fail", 3), ("kill", 0), ("reject", 0)])
def test_a_dead_letter_has_no_object(
    project: Project,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
    step: str,
    losses: int,
) -> None:
    project = project.with_settings(reliable={"MAX_LOSSES": losses})
    start_worker("one", project=project)
    first = project.send("unique", "object", [step])
    client = redis_server.client()
    wait_for(lambda: client.hget(RECORD + first.id, "state") == b"dead", 15, "buried")
    wait_for(lambda: not client.keys(LOCKS), 5, "no object held")
    second = project.send("unique", "object")
    assert second.id != first.id
    assert second.get(timeout=10) == "run 1"


def test_what_nobody_has_begun_has_its_object_until_it_is_called_off(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    project = project.with_settings(reliable={"ETA_HORIZON_SECONDS": 3})
    parked = project.send("unique", "parked", countdown=3600)
    expiring = project.send("unique", "expiring", expires=1)
    purged = project.send("unique", "purged", queue="unread")
    held = {"parked": parked, "expiring": expiring, "purged": purged}
    for object_id, result in held.items():
        assert project.send("unique", object_id).id == result.id
    client = redis_server.client()
    assert client.llen("celery") == 1
    assert client.llen("unread") == 1
    assert client.hget(RECORD + parked.id, "state") == b"parked"

    at = effects.now()
    wait_for(lambda: effects.now() - at > 1, 5, "its expiry")
    start_worker("one", project=project)
    parked.revoke()
    assert purge(project.app, ["unread"]).records == 1

    is_free(redis_server)
    for result in (parked, expiring):
        with pytest.raises(TaskRevokedError):
            result.get(timeout=10)
    for object_id, result in held.items():
        again = project.send("unique", object_id)
        assert again.id != result.id
        assert again.get(timeout=10) == "run 1"
    assert len(effects.runs()) == 3


def test_a_terminated_task_frees_its_object(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start_worker("one")
    first = project.send("unique", "object", ["gate:never"])
    running(effects, first.id)
    first.revoke(terminate=True)
    with pytest.raises(TaskRevokedError):
        first.get(timeout=15)
    is_free(redis_server)
    assert project.send("unique", "object").get(timeout=10) == "run 1"


def test_for_whose_id_somebody_waits_is_published_in_any_case(
    project: Project, start_worker: Start, effects: Effects, redis_server: RedisServer
) -> None:
    start_worker("one")
    first = project.send("unique_fail", "object", ["gate:gate"])
    running(effects, first.id)
    unique, add = project.task("unique_fail"), project.task("add")
    member = unique.si("object")
    frozen = member.clone()
    assert frozen.freeze().id != first.id
    waited_for = {
        "frozen": frozen.apply_async(),
        "group": group(member, member).apply_async().results[0],
        "first": chain(member, add.si(1, 2)).apply_async().parent,
        "last": chain(add.si(1, 2), member).apply_async(),
        "header": chord([member], add.si(1, 2)).apply_async().parent.results[0],
        "body": chord([add.si(1, 2), add.si(3, 4)], member).apply_async(),
        "linked": add.apply_async((1, 2), link=member.clone().set(task_id="linked")),
        "host": unique.apply_async(("object",), link=add.si(1, 2)),
        "by name": project.app.send_task("project.unique_fail", ("object",)),
    }
    waited_for["linked"] = unique.AsyncResult("linked")
    for how, result in waited_for.items():
        assert result.id != first.id, how
        with pytest.raises(ObjectBusy, match=first.id):
            result.get(timeout=20)
    effects.open_gate("gate")
    assert first.get(timeout=10) == "run 1"
    assert {run.task_id for run in effects.runs() if run.task == unique.name} == {first.id}


def test_a_send_that_raised_frees_the_object(
    project: Project, proxy: RedisProxy, redis_server: RedisServer
) -> None:
    behind_proxy = project.with_settings(broker_url=proxy.url())
    proxy.drop_request("LPUSH", times=None)
    with pytest.raises(Exception, match=r"(?i)connect|closed|refused|reset"):
        behind_proxy.send("unique", "object", retry=False)
    assert not left_over(redis_server)


def test_a_task_that_another_call_was_answered_with_is_sent_later(
    soon: Project,
    proxy: RedisProxy,
    start_worker: Start,
    effects: Effects,
    redis_server: RedisServer,
) -> None:
    behind_proxy = soon.with_settings(
        broker_url=proxy.url(), reliable={**SOON, "REDIS_URL": redis_server.url()}
    )
    client = redis_server.client()
    proxy.stall()
    with ThreadPoolExecutor(1) as caller:
        sending = caller.submit(behind_proxy.send, "unique", "object", retry=False)
        wait_for(lambda: client.keys(LOCKS), 10, "it has the object")
        second = soon.send("unique", "object")
        proxy.sever()
        first = sending.result(30)
    assert second.id == first.id
    assert client.llen("celery") == 0
    start_worker("one", project=soon)
    assert second.get(timeout=20) == "run 1"
    is_free(redis_server)
    assert len(effects.runs()) == 1


def test_who_cannot_tell_whose_the_object_is_sends_nothing(
    project: Project, proxy: RedisProxy, redis_server: RedisServer
) -> None:
    for outbox in (False, True):
        behind_proxy = project.with_settings(broker_url=proxy.url(), reliable={"OUTBOX": outbox})
        rule = proxy.drop_request(script=script("lock").sha, times=None)
        with pytest.raises(LedgerUnavailable):
            behind_proxy.send("unique", "object")
        proxy.remove(rule)
        client = redis_server.client()
        assert not left_over(redis_server)
        assert client.llen("celery") == 0


@pytest.mark.parametrize("is_failing", [True, False])
def test_a_call_after_an_outcome_is_another_task_though_a_hook_still_has_the_object(
    project: Project, start_worker: Start, effects: Effects, is_failing: bool
) -> None:
    timed.add_tasks(project.app)
    start_worker("one", app="tests.integration.project.timed")
    first = project.send("ends_slowly", "object", is_failing)
    first.get(timeout=10, propagate=False)

    second = project.send("ends_slowly", "object", is_failing)

    assert second.id != first.id
    assert effects.client.lrange("hooks", 0, -1) == [first.id.encode()]
    second.get(timeout=10, propagate=False)
    assert not effects.overlaps()
    assert len(effects.runs()) == 2


@pytest.mark.parametrize("layout", ["beside the ledger", "elsewhere"])
def test_a_call_after_a_failure_is_never_answered_with_it(
    project: Project, start_worker: Start, start_redis: StartRedis, scale: Scale, layout: str
) -> None:
    if layout == "elsewhere":
        project = project.with_settings(result_url=start_redis().url())
    start_worker("one", project=project)
    calls = scale.of(full=200, small=40)
    ids = set()
    for _ in range(calls):
        result = project.send("unique", "object", ["fail"])
        ids.add(result.id)
        with pytest.raises(Broken):
            result.get(timeout=10)
    assert len(ids) == calls


def test_a_call_after_a_time_limit_is_never_answered_with_it(
    project: Project, start_worker: Start
) -> None:
    start_worker("one")
    ids = set()
    for _ in range(4):
        result = project.send("unique", "object", ["gate:never"], time_limit=1)
        ids.add(result.id)
        with pytest.raises(TimeLimitExceeded):
            result.get(timeout=10)
    assert len(ids) == 4
