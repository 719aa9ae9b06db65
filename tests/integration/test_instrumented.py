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

from celery_reliable.app import reliable_of
from celery_reliable.message import Stamp
from tests.integration.conftest import Project
from tests.integration.figures import record_of, wait_until_gone
from tests.support.processes import REPOSITORY

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
