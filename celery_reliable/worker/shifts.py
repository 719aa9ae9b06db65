"""The main process's part in shifts: who has one, and what becomes of what it leaves."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from celery.worker import state

from celery_reliable.broker import Queues
from celery_reliable.compat.consumer import Slots
from celery_reliable.compat.pool import has_job, limit_job, scale_by
from celery_reliable.pool import (
    Report,
    Shift,
    TaskPool,
    call_off_shifts,
    note_revoked,
    note_revoked_stamps,
    shifts_called_off,
    work,
)
from celery_reliable.worker.running_shift import RunningShift, RunningShifts, ShiftRequests
from celery_reliable.worker.shift_limits import ShiftHearing, ShiftLimits
from celery_reliable.worker.special_tasks import SpecialNames

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "Shifts",
]


#: How long a shift takes messages.
_SHIFT_SECONDS = 1.0
#: A shift of fewer tasks that left something to the main process was in vain.
_IN_VAIN = 8
#: After that no shift begins for so long, doubled each time.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0


class Shifts:
    """Gives shifts to idle processes of a pool, and deals with what they leave.  For the main
    loop.
    """

    def __init__(self, w: Any, step: WorkerStep) -> None:
        self._worker = w
        self._step = step
        self._slots = Slots(w)
        self._requests = ShiftRequests(w, step)
        #: Any thread may ask them whose a claim is.
        self.running = RunningShifts()
        #: None where no process takes messages.
        self._hearing: ShiftHearing | None = None
        self._limits = ShiftLimits(w, self.running, self._requests)
        self._not_before = 0.0
        self._pause = 0.0
        #: How many revoked ids the processes have heard of.
        self._n_revoked = 0

    def start(self) -> None:
        """Give shifts from now on, if the processes of the started pool can take messages."""
        w, step = self._worker, self._step
        if (
            isinstance(w.pool, TaskPool)
            and w.use_eventloop
            and step.unacked_name
            and step.reliable.is_delivered_from_ledger
        ):
            self._hearing = ShiftHearing(w, self.running, self._requests)
            if w.autoscaler is not None:
                scale_by(w.autoscaler, self._n_wanted)

    def _n_wanted(self) -> int:
        """How many processes could have something to do."""
        return len(state.reserved_requests) + len(self.running)

    def __len__(self) -> int:
        return len(self.running)

    @property
    def n_unseen(self) -> int:
        """How many run of which Celery's state has no request."""
        return max(0, len(self.running) - self._requests.n_shown)

    def is_running(self, tag: str) -> bool:
        """Whether the process that has taken a message goes on with it as the worker leaves."""
        return self.running.holding(tag) is not None and not state.should_terminate

    def show(self) -> None:
        """Let Celery's state have a request of each task that runs in a shift."""
        self._requests.show(self.running)

    # -- beginning

    def may_begin(self) -> bool:
        """Whether processes may take their own messages now."""
        return self._hearing is not None and not (
            self._step.is_leaving
            or time.monotonic() < self._not_before
            or self.running.is_full
            # Not in a worker that is embedded in another process.
            or not self._worker.app.use_fast_trace_task
            or self._slots.waiting
        )

    def work_off(self, channel: Any, n_waiting: int) -> None:
        """Give shifts to so many idle processes: as many messages have come."""
        self._tell_revoked()
        names = self._step.special_tasks.names()
        queues = channel.queues_for_shift()
        for _ in range(n_waiting if queues is not None else 0):
            self._begin(channel, queues, names)
        if self._worker.autoscaler is not None:
            self._worker.autoscaler.maybe_scale(self)

    def _tell_revoked(self) -> None:
        """Let the processes know of what this worker has heard from others, or remembers."""
        if len(state.revoked) != self._n_revoked:
            self._n_revoked = len(state.revoked)
            note_revoked(state.revoked)
        if state.revoked_stamps:
            note_revoked_stamps()

    def _begin(self, channel: Any, queues: Queues, names: SpecialNames) -> None:
        running = self.running.add()
        shift = Shift(
            running.token,
            running.slot,
            running.after,
            queues,
            channel.takes_turns,
            shifts_called_off(),
            _SHIFT_SECONDS,
            int(self._worker.max_memory_per_child or 0),
            self._hearing is not None and self._hearing.wants_messages,
            names.left_out,
            names.shown,
            names.limits,
        )
        self._slots.acquire(partial(self._submit, running), shift)

    def _submit(self, running: RunningShift, shift: Shift) -> None:
        running.job = self._worker.pool.apply_async(
            work,
            (shift,),
            accept_callback=partial(_accepted, running),
            callback=partial(self._ended, shift.token),
            error_callback=partial(self._lost, shift.token),
        )
        if running.job is not None:
            limit_job(running.job)

    # -- ending

    def call_off(self) -> None:
        """Let all end after the tasks that they run."""
        if self.running:
            call_off_shifts()

    def leave(self) -> None:
        """The worker leaves: no shift begins any more."""
        call_off_shifts()
        self._limits.leave()
        # Celery waits for what runs, or stops it.
        self.show()

    def look(self) -> None:
        """Keep the time limits, and let all end if something waits for one of their processes."""
        self._limits.look()
        if self.running and self._slots.waiting:
            self.call_off()

    def _ended(self, token: str, report: Report) -> None:
        ended = self.running.remove(token)
        if ended is not None:
            self._requests.hide_all_of(ended)
        for name, count in report.begun.items():
            state.total_count[name] += count
            state.all_total_count[0] += count
        if report.left is None:
            self._pause = 0.0
            return
        if sum(report.begun.values()) < _IN_VAIN:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            self._not_before = time.monotonic() + self._pause
        if ended is not None:
            self._requests.take_over(report.left, ended)

    def forget_dropped(self) -> None:
        """Forget shifts that waited for a slot, or whose job no process was handed: Celery does as
        it loses its connection.
        """
        for running in self.running:
            if running.job is None or not has_job(self._worker.pool, running.job):
                self.running.remove(running.token)

    def _lost(self, token: str, exc_info: Any) -> None:
        """A process was lost in its shift, or stopped."""
        running = self.running.remove(token)
        if running is not None:
            self._requests.end_lost(running, exc_info)


def _accepted(running: RunningShift, pid: int, accepted_at: float) -> None:
    running.pid = pid
