"""Limited tasks that come too early: the main process parks them as it takes their messages, so
that no process is busy with them.
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
from celery_reliable.worker.patience import PATIENCE_SECONDS

__all__ = ["EarlyMoments"]


class EarlyMoments:
    """Asks for one consumer whether a message's task has to wait for its moment.

    Whose moment has come asks for it in its process, when that is about to begin it.
    """

    def __init__(self, c: Any, process: WorkerProcess) -> None:
        self._app = c.app
        self._process = process
        self._paces = reliable_of(c.app).ledger.paces

    def __call__(self, payload: dict[str, Any]) -> bool:
        """Whether the task of a message is parked: then the message has to be dropped."""
        headers = payload.get("headers") or {}
        name, task_id = headers.get("task"), headers.get("id")
        task: Any = self._app.tasks.get(name) if isinstance(name, str) else None
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
        if rate is None or not epoch or not self._process.surely_holds(self._process.id):
            return False
        try:
            answer = self._paces.reserve(
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
        logger.debug(
            "task_too_early name=%s id=%s until=%s", task.name, task_id, answer.due_ms / 1000
        )
        return True
