"""What becomes of what a shift leaves: a message for the main process, or what a process ran that
died.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.signals import task_received
from celery.worker import state

from celery_reliable.broker import Delivery
from celery_reliable.compat.pool import billiards
from celery_reliable.compat.processes import hear_processes, limit_job
from celery_reliable.compat.request import lost_worker, over_limit
from celery_reliable.context import WorkerProcess
from celery_reliable.log import logger
from celery_reliable.pool import Left, Limited, Told, slots
from celery_reliable.worker.claims import end_child, ending
from celery_reliable.worker.running_shift import RunningShift, RunningShifts, ShiftRequests

__all__ = [
    "ShiftEnds",
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
        self._requests.hide(told.ended)
        if told.begun is not None and running is not None:
            request = self._requests.show_begun(told.begun, running)
            if request is not None:
                task_received.send(sender=c, request=request)
        # None while it connects; what it was told then, Celery's own pool loses too.
        dispatcher = c.event_dispatcher if c is not None else None
        if dispatcher is not None:
            for kind, fields in told.events:
                dispatcher.send(kind, **fields)


#: What is up within that, a timer waits for; it is longer than the time between two looks.
_SOON_SECONDS = 0.75


class ShiftLimits:
    """The limits of one worker.  For the main loop."""

    def __init__(
        self,
        w: Any,
        shifts: RunningShifts,
        requests: ShiftRequests,
        lose: Callable[[RunningShift, Any], None],
    ) -> None:
        self._worker = w
        self._shifts = shifts
        self._requests = requests
        self._lose = lose

    def look(self) -> None:
        """Stop what has run for too long, and see to what soon will have."""
        for running in self._shifts:
            task = slots[running.slot].limited
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
            task = slots[running.slot].limited
            if task is not None and running.job is not None:
                limit_job(running.job, task.soft or None, task.hard or None, task.since)

    def _runs(self, running: RunningShift, task: Limited) -> bool:
        return running in self._shifts and slots[running.slot].limited == task

    def _tell(self, running: RunningShift, task: Limited) -> None:
        """The soft limit is up."""
        if not self._runs(running, task) or running.told_of == task.since:
            return
        running.told_of = task.since
        self._requests.show(self._shifts)
        request = self._requests.shown(running.tag_of(task.number))
        if request is not None:
            request.on_timeout(True, task.soft)
        slots[running.slot].meant = task.since
        if running.pid is not None and self._runs(running, task):
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGUSR1)

    def _stop(self, running: RunningShift, task: Limited) -> None:
        """The hard limit is up."""
        # While the pool is stopped this is a thread, beside which the main loop hears of the death.
        if not self._runs(running, task) or self._shifts.remove(running.token) is None:
            return
        slot, number = slots[running.slot], task.number
        with ending(running.tag_of(number)):
            end_child(running.pid)
            # It may have ended just before, and its process run another by then.
            is_it = slot.limited == task and slot.first == slot.last == number
            too_late = RuntimeError("its time limit was another task's")
            self._lose(running, over_limit(task.hard) if is_it else lost_worker(too_late))


#: With what a process ends that died, or was stopped.
_ENDED = (Terminated, TimeLimitExceeded, WorkerLostError, SystemExit, KeyboardInterrupt)


class ShiftEnds:
    """For the main loop."""

    def __init__(self, process: WorkerProcess, requests: ShiftRequests) -> None:
        self._process = process
        self._requests = requests
        #: What is left goes back, instead of being dealt with here.
        self.is_leaving = False

    def end_lost(self, running: RunningShift, exc_info: Any) -> None:
        """Let end what a process ran that was lost in its shift, or stopped."""
        # billiard wraps what a process has sent, and what it says of one that died.
        exc = getattr(exc_info.exception, "exc", exc_info.exception)
        if not isinstance(exc, _ENDED):
            # Of what it ran nobody knows more than if it had died.
            exc_info = lost_worker(exc)
        # Without a look at the broker, which may be away.
        let_go = list(self._requests.let_go(running))
        for request in let_go:
            _end(request, exc_info)
        ended = {request.message.delivery_tag for request in let_go}
        try:
            for left in self._requests.filed(running):
                if left.tag not in ended:
                    self._end_left(left, running, exc_info)
        except Exception as exc:
            logger.warning("shift_not_ended error=%s", exc)
        self._requests.hide_all_of(running)

    def _end_left(self, left: Left, running: RunningShift, exc_info: Any) -> None:
        try:
            request = self._requests.request(left, running)
        except Exception as exc:
            logger.warning("shift_not_ended error=%s", exc)
            return
        if request is None:
            self.take_over(left, running)
        else:
            _end(request, exc_info)

    def take_over(self, left: Left, running: RunningShift) -> None:
        """Deal with a message that a shift has left as if the main process had taken it."""
        channel, unacked = self._requests.channel, self._requests.unacked
        if unacked is None:
            return
        if channel is None or self.is_leaving:
            # It goes back with all that the worker leaves, or once it is connected again.
            if channel is not None:
                unacked.give_back(channel, left.tag, is_last=False)
            return
        if left.outcome is None:
            delivery = Delivery(left.tag, left.queue, left.message, self._process.id)
            channel.deliver_all([delivery])
            return
        request = self._requests.request(left, running, is_known=True)
        if request is not None:
            state.task_reserved(request)
            request.on_success(left.outcome)


def _end(request: Any, exc_info: Any) -> None:
    """Let a request end that its process cannot end, as the pool does."""
    state.total_count[request.name] += 1
    state.all_total_count[0] += 1
    request.on_failure(exc_info)
