"""Dead letters that a test puts there."""

from __future__ import annotations

from celery_reliable.app import reliable_of
from celery_reliable.message.envelope import Envelope
from celery_reliable.model import Reason
from tests.integration.conftest import Project


def put(
    project: Project,
    task_id: str,
    *,
    name: str = "project.work",
    reason: Reason = Reason.REJECTED,
    exception: str = "put there by a test",
    queue: str = "celery",
    args: str = "[0.01]",
    **headers: object,
) -> None:
    """Bury a message that no worker has ever seen."""
    embed = '{"callbacks": null, "errbacks": null, "chain": null, "chord": null}'
    envelope = Envelope(
        f"[{args}, {{}}, {embed}]".encode(),
        "application/json",
        "utf-8",
        {"id": task_id, "task": name, "lang": "py", "root_id": task_id, **headers},
        {"correlation_id": task_id, "expiration": 0.5},
        "",
        queue,
    )
    reliable_of(project.app).ledger.bury_message(
        task_id,
        reason,
        exception=exception,
        traceback="",
        message=envelope.to_text(),
        name=name,
    )
