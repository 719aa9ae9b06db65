"""Limited tasks that come too early: they are parked as their message is taken, so that they cost
no process anything.
"""

from __future__ import annotations

from typing import Any

from celery.worker import state

from celery_reliable.app import reliable_of
from celery_reliable.context import WorkerProcess
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import NAMED, Stamp
from celery_reliable.options import is_limited, is_per_object, is_reliable, rate_of
from celery_reliable.worker.claims import PATIENCE_SECONDS

__all__ = ["is_too_early"]


def is_too_early(app: Any, process: WorkerProcess, payload: dict[str, Any]) -> bool:
    """Park the task of a message that comes before its moment; return whether it did so, and the
    message has to be dropped.

    A task whose moment has come asks for it in its process, when that is about to begin it.
    """
    headers = payload.get("headers") or {}
    name, task_id = headers.get("task"), headers.get("id")
    task: Any = app.tasks.get(name) if isinstance(name, str) else None
    if (
        not is_reliable(task)
        or not is_limited(task)
        # Which object it is of says only its body.
        or is_per_object(type(task).rate)
        or not isinstance(task_id, str)
        or task_id in state.revoked
        # It asks after its time, and where it may run.
        or headers.get("eta")
        or headers.get("expires")
        or NAMED in headers
    ):
        return False
    rate, epoch = rate_of(task, (), {}), Stamp.of(headers).epoch
    if rate is None or not epoch or not process.surely_holds(process.id):
        return False
    try:
        answer = reliable_of(app).ledger.paces.reserve(
            task_id,
            task.name,
            rate,
            epoch=epoch,
            only_to_wait=True,
            patience_seconds=PATIENCE_SECONDS,
        )
    except ReliableError:
        # Its process asks again, and waits longer.
        return False
    if not isinstance(answer, answers.ParkedUntil):
        return False
    logger.debug("task_too_early name=%s id=%s until=%s", name, task_id, answer.due_ms / 1000)
    return True
