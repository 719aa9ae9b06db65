"""The main process's part in shifts: who has one, and what becomes of what it leaves."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from celery.utils.imports import symbol_by_name
from celery.worker import state

from celery_reliable.broker import Queues
from celery_reliable.compat.consumer import Slots
from celery_reliable.compat.pool import has_job
from celery_reliable.compat.processes import limit_job
from celery_reliable.context import WorkerProcess
from celery_reliable.log import logger
from celery_reliable.options import is_reliable
from celery_reliable.pool import (
    Report,
    Shift,
    TaskPool,
    call_off_shifts,
    shifts_called_off,
    work,
)
from celery_reliable.worker import throughput
from celery_reliable.worker.arrivals import LeftOut, may_wait
from celery_reliable.worker.request import ReliableRequest
from celery_reliable.worker.running_shift import RunningShift, RunningShifts, ShiftRequests
from celery_reliable.worker.shift_limits import ShiftHearing, ShiftLimits

if TYPE_CHECKING:
    from celery_reliable.worker.worker_step import WorkerStep

__all__ = [
    "ShiftRules",
    "Shifts",
    "shifts_of",
]

#: A shift is handed so many revoked ids at most.
_MOST_REVOKED = 200


class ShiftRules:
    """The rules of one worker.  For the main loop.

    Each message that finds an idle process is told of all tasks, so what is known of them is kept.
    """

    def __init__(self, w: Any, process: WorkerProcess) -> None:
        self._worker = w
        self._process = process
        self._left_out = LeftOut(process, self._is_cold)
        #: As it was when the rest was made of it.
        self._seen: list[str] | None = None
        self._cold: list[str] | None = None
        self._limits: dict[str, tuple[float, float]] | None = None

    def forget(self) -> None:
        """Look at time limits anew: a remote command has changed one, or Celery began anew."""
        self._limits = None

    def cold(self) -> list[str] | None:
        """Return the names of the reliable tasks that go by the main process; None if all do."""
        cold = self._left_out.names(self._worker.consumer)
        if cold is not self._seen:
            tasks = [one.name for one in self._worker.app.tasks.values() if is_reliable(one)]
            self._cold = cold if len(cold) < len(tasks) else None
            self._seen, self._limits = cold, None
        return self._cold

    def limits(self) -> dict[str, tuple[float, float]]:
        """Return soft and hard time limits by the names of the reliable tasks that have one, in
        seconds; 0: none.
        """
        if self._limits is None:
            w = self._worker
            found = {
                one.name: (
                    one.soft_time_limit or w.soft_time_limit or 0.0,
                    one.time_limit or w.time_limit or 0.0,
                )
                for one in w.app.tasks.values()
                if is_reliable(one)
            }
            self._limits = {name: limits for name, limits in found.items() if any(limits)}
        return self._limits

    def _is_cold(self, task: Any) -> bool:
        return bool(
            may_wait(self._worker.consumer, task)
            or symbol_by_name(task.Request) is not ReliableRequest
            or getattr(type(task), "time_to_run_seconds", None)
            or self._process.orders.of_task(task.name)
        )


#: How long a shift takes messages.
_SHIFT_SECONDS = 1.0
#: A shift of fewer tasks that left something to the main process was in vain.
_IN_VAIN = 8
#: After that no shift begins for so long, doubled each time.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0


def shifts_of(w: Any, step: WorkerStep) -> Shifts | None:
    """Return what gives shifts to the processes of a worker's pool; None where they have none."""
    if not isinstance(w.pool, TaskPool):
        return None
    is_possible = w.use_eventloop and step.unacked_name and step.reliable.is_delivered_from_ledger
    # Celery's autoscaler sees only what the main process receives.
    if w.autoscale or not is_possible:
        logger.warning("pool_is_prefork worker=%s", step.process.id)
        return None
    return Shifts(w, step)


class Shifts:
    """Gives shifts to idle processes of a pool, and deals with what they leave.  For the main
    loop.
    """

    def __init__(self, w: Any, step: WorkerStep) -> None:
        self._worker = w
        self._step = step
        self._rules = ShiftRules(w, step.process)
        self._slots = Slots(w)
        self._requests = ShiftRequests(w, step)
        #: Any thread may ask them whose a claim is.
        self.running = RunningShifts()
        self._hearing = ShiftHearing(w, self.running, self._requests)
        self._limits = ShiftLimits(w, self.running, self._requests, self._requests.end_lost)
        self._not_before = 0.0
        self._pause = 0.0

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
        w = self._worker
        return not (
            self._step.is_leaving
            or time.monotonic() < self._not_before
            or self.running.is_full
            or not w.app.use_fast_trace_task
            or len(state.revoked) > _MOST_REVOKED
            or self._slots.waiting
        )

    def work_off(self, channel: Any, n_waiting: int, n_idle: int) -> None:
        """Give shifts to idle processes, if *n_waiting* messages wait and these may be theirs."""
        if n_idle <= 0 or not self.may_begin():
            return
        cold = self._rules.cold()
        queues = channel.queues_for_shift(cold) if cold is not None else None
        if queues is None:
            return
        for _ in range(min(n_idle, n_waiting)):
            self._begin(channel, queues)

    def _begin(self, channel: Any, queues: Queues) -> None:
        running = self.running.add()
        shift = Shift(
            running.token,
            running.slot,
            queues,
            channel.takes_turns,
            shifts_called_off(),
            _SHIFT_SECONDS,
            frozenset(state.revoked),
            int(self._worker.max_memory_per_child or 0),
            self._hearing.wants_messages,
            self._rules.limits(),
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

    def heed_limits(self) -> None:
        """Begin shifts by what tasks say from now on, and let those that run end."""
        self._rules.forget()
        self.call_off()

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
        throughput.count("failed", report.failed)
        throughput.count("not_ended", report.not_begun)
        channel = self._requests.channel
        if report.found_nothing and channel is not None:
            channel.note_empty()
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
