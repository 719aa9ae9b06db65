"""Dead letters that a test puts there."""

from __future__ import annotations

from celery_reliable.app import reliable_of
from celery_reliable.message.envelope import Envelope
from celery_reliable.model import Reason
from tests.integration.conftest import Project


def put(project: Project, task_id: str, **headers: object) -> None:
    """Bury a message of `project.work` that no worker has ever seen."""
    envelope = Envelope(
        b'[[0.01], {}, {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]',
        "application/json",
        "utf-8",
        {"id": task_id, "task": "project.work", "lang": "py", "root_id": task_id, **headers},
        {"correlation_id": task_id, "expiration": 0.5},
        "",
        "celery",
    )
    reliable_of(project.app).ledger.bury_message(
        task_id,
        Reason.REJECTED,
        exception="put there by a test",
        traceback="",
        message=envelope.to_text(),
        name="project.work",
    )
