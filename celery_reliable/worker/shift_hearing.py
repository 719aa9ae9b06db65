"""The main process hears of the tasks that processes of its pool take by themselves."""

from __future__ import annotations

from typing import Any

from celery.signals import task_received

from celery_reliable.compat.pool import billiards
from celery_reliable.compat.processes import hear_processes
from celery_reliable.log import logger
from celery_reliable.pool import Told
from celery_reliable.worker.running_shift import RunningShifts
from celery_reliable.worker.shift_requests import ShiftRequests

__all__ = ["ShiftHearing"]


class ShiftHearing:
    """Sends Celery's events of these tasks, and lets its state have their requests where that is
    wanted.  For the main loop.
    """

    def __init__(self, w: Any, running: RunningShifts, requests: ShiftRequests) -> None:
        self._worker = w
        self._running = running
        self._requests = requests
        # Celery stops what it knows to run.
        self._are_stopped = bool(w.app.conf.worker_cancel_long_running_tasks_on_connection_loss)
        hear_processes(billiards(w.pool), self._hear)

    @property
    def wants_messages(self) -> bool:
        """Whether the main process has to know each task that runs."""
        return bool(task_received.receivers or self._are_stopped)

    def _hear(self, told: Told) -> None:
        try:
            self._heard(told)
        except Exception as exc:
            # Raised into the pool it would pass for a fault of the process.
            logger.warning("shift_not_heard error=%s", exc)

    def _heard(self, told: Told) -> None:
        c, running = self._worker.consumer, self._running.of_token(told.shift)
        self._requests.hide_if_shown(told.ended)
        if told.begun is not None and running is not None:
            request = self._requests.show_begun(told.begun, running)
            if request is not None:
                task_received.send(sender=c, request=request)
        # None while it connects; what it was told then, Celery's own pool loses too.
        dispatcher = c.event_dispatcher if c is not None else None
        if dispatcher is not None:
            for kind, fields in told.events:
                dispatcher.send(kind, **fields)
