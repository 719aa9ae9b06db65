"""What becomes of what a shift leaves: a message for the main process, or what a process ran that
died.
"""

from __future__ import annotations

from typing import Any

from billiard.exceptions import Terminated, TimeLimitExceeded, WorkerLostError
from celery.worker import state

from celery_reliable.broker import Delivery
from celery_reliable.compat.request import lost_worker
from celery_reliable.context import WorkerProcess
from celery_reliable.log import logger
from celery_reliable.pool import Left
from celery_reliable.worker.running_shift import RunningShift
from celery_reliable.worker.shift_requests import ShiftRequests

__all__ = ["ShiftEnds"]

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
        self._requests.put_back_unfiled(running)
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
            channel.deliver(Delivery(left.tag, left.queue, left.message, self._process.id))
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
