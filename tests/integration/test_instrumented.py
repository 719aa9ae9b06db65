"""What instruments Celery (as Sentry and OpenTelemetry do) copies the headers of a publication and
adds its own.  That is recorded all the same; and who publishes hears of it where nothing is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import kombu
import pytest
from celery.app.amqp import AMQP

from celery_reliable.app import reliable_of
from celery_reliable.message import Stamp
from tests.integration.conftest import Project
from tests.integration.figures import record_of, wait_until_gone
from tests.support.processes import REPOSITORY

TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

Publish = Callable[..., Any]


def _copied(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "headers": {**(options.get("headers") or {}), **TRACE}}


@pytest.fixture
def copied_by_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kombu's own producer gives on a copy."""
    own: Publish = kombu.Producer.publish

    def publish(self: Any, body: Any, **options: Any) -> Any:
        return own(self, body, **_copied(options))

    monkeypatch.setattr(kombu.Producer, "publish", publish)


@pytest.fixture
def copied_by_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Celery publishes with is given a copy."""

    class Copying:
        def __init__(self, producer: Any) -> None:
            self.producer = producer

        def __getattr__(self, name: str) -> Any:
            return getattr(self.producer, name)

        def publish(self, body: Any, **options: Any) -> Any:
            return self.producer.publish(body, **_copied(options))

    own: Publish = AMQP._create_task_sender

    def create(self: Any) -> Publish:
        send = own(self)
        return lambda producer, *args, **options: send(Copying(producer), *args, **options)

    monkeypatch.setattr(AMQP, "_create_task_sender", create)


@pytest.fixture(params=["copied_by_the_producer", "copied_by_the_sender"])
def copying(request: pytest.FixtureRequest) -> None:
    """Somebody copies the headers on their way."""
    request.getfixturevalue(request.param)


def _headers(project: Project, task_id: str) -> dict[str, Any]:
    """Return the headers of the task's message in the queue."""
    with project.redis.client() as client:
        waiting = [json.loads(raw) for raw in client.lrange("celery", 0, -1)]
    found = [one["headers"] for one in waiting if one["headers"]["id"] == task_id]
    assert len(found) == 1
    return dict(found[0])


def test_a_copy_of_the_headers_is_recorded_and_stamped(copying: None, project: Project) -> None:
    result = project.send("work", 0.01)
    ledger = reliable_of(project.app).ledger
    record = ledger.find(result.id)
    assert record is not None
    assert record.state.value == "queued"
    headers = _headers(project, result.id)
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
    said = subprocess.run(
        [sys.executable, "-c", MEASURED],
        env=project.environ("ready:none", {"WRAPPER": "wraps", "PYTHONPATH": str(REPOSITORY)}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert said.returncode == 0, said.stderr
    task_id = said.stdout.strip()
    assert record_of(project.redis, task_id)["state"] == "queued"

    project.start_worker(app="tests.integration.project.measured", environ={"WRAPPER": "wraps"})
    assert project.app.AsyncResult(task_id).get(timeout=30) == "worked"
    wait_until_gone(project.redis, task_id)
