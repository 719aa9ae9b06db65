"""What a worker's main process does for tasks that run in shifts: their events, their limits."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

from billiard.exceptions import TimeLimitExceeded
from celery.signals import task_received
from celery.utils.imports import symbol_by_name

from celery_reliable.compat.pool import billiards, hear_processes, limit_job
from celery_reliable.log import logger
from celery_reliable.pool import Limited, Told, slot_of
from celery_reliable.worker.claims import end_child, ended_by, ending, lost_worker
from celery_reliable.worker.request import ReliableRequest
from celery_reliable.worker.running_shift import RunningShift, RunningShifts, ShiftRequests

__all__ = [
    "ShiftHearing",
    "ShiftLimits",
]


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
        if told.outcome is None:
            self._requests.hide(told.ended)
        else:
            self._requests.end(told.ended, told.outcome)
        request = None
        if told.begun is not None and running is not None:
            # The pool may say so later.
            running.pid = told.pid
            request = self._requests.show_begun(told.begun, running)
        if request is not None:
            task_received.send(sender=c, request=request)
        # None while it connects; what it was told then, Celery's own pool loses too.
        dispatcher = c.event_dispatcher if c is not None else None
        if dispatcher is not None:
            for kind, fields in told.events:
                dispatcher.send(kind, **fields)
        if request is not None and symbol_by_name(request.task.Request) is not ReliableRequest:
            request.on_accepted(told.pid, time.monotonic())


#: What is up within that, a timer waits for; it is longer than the time between two looks.
_SOON_SECONDS = 0.75


class ShiftLimits:
    """The limits of one worker.  For the main loop."""

    def __init__(self, w: Any, shifts: RunningShifts, requests: ShiftRequests) -> None:
        self._worker = w
        self._shifts = shifts
        self._requests = requests

    def look(self) -> None:
        """Stop what has run for too long, and see to what soon will have."""
        for running in self._shifts:
            task = slot_of(running.slot).limited
            if task is None or running.pid is None:
                continue
            for limit, act in ((task.soft, self._tell), (task.hard, self._stop)):
                left = task.since + limit - time.monotonic()
                if limit and left <= 0:
                    act(running, task)
                elif limit and left < _SOON_SECONDS:
                    self._worker.timer.call_after(left, act, (running, task))

    def leave(self) -> None:
        """Let the pool keep the limits, as it does while it is stopped."""
        for running in self._shifts:
            task = slot_of(running.slot).limited
            if task is not None and running.job is not None:
                limit_job(running.job, task.soft or None, task.hard or None, task.since)

    def _runs(self, running: RunningShift, task: Limited) -> bool:
        return running in self._shifts and slot_of(running.slot).limited == task

    def _tell(self, running: RunningShift, task: Limited) -> None:
        """The soft limit is up."""
        if not self._runs(running, task) or running.told_of == task.since:
            return
        running.told_of = task.since
        self._requests.show(self._shifts)
        request = self._requests.shown(running.tag_of(task.number))
        if request is not None:
            request.on_timeout(True, task.soft)
        slot_of(running.slot).meant = task.since
        if running.pid is not None and self._runs(running, task):
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGUSR1)

    def _stop(self, running: RunningShift, task: Limited) -> None:
        """The hard limit is up."""
        # While the pool is stopped this is a thread, beside which the main loop hears of the death.
        if not self._runs(running, task) or self._shifts.remove(running.token) is None:
            return
        slot, number = slot_of(running.slot), task.number
        with ending(running.tag_of(number)):
            end_child(running.pid)
            # It may have ended just before, and its process run another by then.
            is_it = slot.limited == task and slot.first == slot.last == number
            too_late = RuntimeError("its time limit was another task's")
            over = ended_by(TimeLimitExceeded(task.hard)) if is_it else lost_worker(too_late)
            self._requests.end_lost(running, over)
