"""Unusual publishers: several threads make the first calls, or a tool instruments Celery."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import kombu
import pytest

from celery_reliable.app import reliable_of
from celery_reliable.message import Stamp
from tests.integration.conftest import Project
from tests.integration.figures import RECORD, record_of, wait_until_gone
from tests.support.processes import run_python
from tests.support.promises import promise
from tests.support.redis_server import RedisServer


def is_recorded(redis_server: RedisServer, task_id: str) -> bool:
    """Whether the ledger has a task."""
    with redis_server.client() as client:
        return bool(client.exists(RECORD + task_id))


#: The package is imported after the app is made, and nobody has asked the app for its tasks.
LATE = """
import sys
from celery import Celery
app = Celery("first", broker=sys.argv[1], fixups=())
from celery_reliable import ReliableTask
@app.task(name="first.work", base=ReliableTask)
def work(): ...
print(app.send_task("first.work").id)
"""


@promise("nothing-lost")
def test_an_app_may_be_made_before_the_package_is_imported(redis_server: RedisServer) -> None:
    assert is_recorded(redis_server, run_python("-c", LATE, redis_server.url()).stdout.strip())


#: Threads call the tasks of an app that nobody has asked for anything.
THREADS = """
import json, sys, threading
from celery import Celery
from celery_reliable import ReliableTask
app = Celery("first", broker=sys.argv[1], backend=sys.argv[1], fixups=())
def body(n): ...
tasks = [app.task(body, name=f"first.{n}", base=ReliableTask) for n in range(30)]
unique = app.task(body, name="unique", base=ReliableTask, object_id="n", unique="queued")
sys.setswitchinterval(1e-6)
barrier, called = threading.Barrier(20), []
def sure(delay, *args):
    # A task is Celery's proxy until it is asked for something.  Who asks in the very moment in
    # which another thread makes the task gets an error, and has published nothing.
    for _ in range(100):
        try:
            return delay(*args).id
        except AttributeError as exc:
            assert "_Proxy" in str(exc) or "__thing" in str(exc), exc
def call(n):
    barrier.wait()
    first = sure(lambda: unique.delay(7)), sure(lambda: tasks[n % 3].delay(n))
    called.append((*first, app.send_task("first.29", (n,)).id))
threads = [threading.Thread(target=call, args=(n,)) for n in range(20)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.setswitchinterval(0.005)
barrier = threading.Barrier(1)
call(0)
print(json.dumps(called))
"""


@promise("nothing-lost")
def test_all_threads_of_a_fresh_process_publish_with_records(redis_server: RedisServer) -> None:
    for _ in range(3):
        redis_server.client().flushall()
        called = json.loads(run_python("-c", THREADS, redis_server.url()).stdout)
        assert len(called) == 21
        ids = {task_id for each in called for task_id in each}
        assert [one for one in ids if not is_recorded(redis_server, one)] == []
        assert len({unique for unique, _, _ in called}) == 1
        with redis_server.client() as client:
            # Each was sent once, the unique one by all threads together.
            assert client.llen("celery") == len(ids) == 2 * 21 + 1


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

Publish = Callable[..., Any]


def test_a_copy_of_the_headers_is_recorded_and_stamped(
    monkeypatch: pytest.MonkeyPatch, project: Project
) -> None:
    own: Publish = kombu.Producer.publish

    def publish(self: Any, body: Any, **options: Any) -> Any:
        copied = {**(options.pop("headers", None) or {}), **TRACE}
        return own(self, body, headers=copied, **options)

    monkeypatch.setattr(kombu.Producer, "publish", publish)
    result = project.send("work", 0.01)
    ledger = reliable_of(project.app).ledger
    record = ledger.find(result.id)
    assert record is not None
    assert record.state.value == "queued"
    with project.redis.client() as client:
        (raw,) = client.lrange("celery", 0, -1)
    headers = json.loads(raw)["headers"]
    assert headers["traceparent"] == TRACE["traceparent"]
    # It is the message of that record, by the publication that it names.
    assert Stamp.of(headers).epoch == record.epoch
    assert json.loads(record.message)["headers"]["reliable"] == headers["reliable"]


#: A process that publishes, in which all is measured.
MEASURED = """
from tests.integration.project.measured import app
print(app.tasks["project.work"].delay(0).id)
"""


def test_tasks_are_published_and_run_where_every_function_is_measured(project: Project) -> None:
    said = run_python("-c", MEASURED, environ=project.environ("ready:none", {}))
    task_id = said.stdout.strip()
    assert record_of(project.redis, task_id)["state"] == "queued"

    project.start_worker(app="tests.integration.project.measured")
    assert project.app.AsyncResult(task_id).get(timeout=30) == "worked"
    wait_until_gone(project.redis, task_id)
