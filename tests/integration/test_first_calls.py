"""The first calls of a process come from several threads at once: each is recorded all the same."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.integration.figures import RECORD
from tests.support.processes import REPOSITORY
from tests.support.promises import promise
from tests.support.redis_server import RedisServer

TIMEOUT_SECONDS = 60.0


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
    assert is_recorded(redis_server, _said(LATE, redis_server).strip())


def _said(program: str, redis_server: RedisServer) -> str:
    """Return what a fresh process says."""
    said = subprocess.run(
        [sys.executable, "-c", program, redis_server.url()],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


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
        called = json.loads(_said(THREADS, redis_server))
        assert len(called) == 21
        ids = {task_id for each in called for task_id in each}
        assert [one for one in ids if not is_recorded(redis_server, one)] == []
        assert len({unique for unique, _, _ in called}) == 1
        with redis_server.client() as client:
            # Each was sent once, the unique one by all threads together.
            assert client.llen("celery") == len(ids) == 2 * 21 + 1
