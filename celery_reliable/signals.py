"""The events of the package.

Receivers are called as Celery's own signals call theirs: what one of them raises is logged.

`task_fenced`
    An attempt that is no longer current tried to end; sent by the process that ran it.
    Arguments: sender (the task), task_id, attempt, state (of the record; "gone" when it ended).
`task_lost`
    An attempt is over without an outcome; sent by the worker's main process, or by whoever sweeps.
    Arguments: sender (the task's name), task_id, attempt, losses, cause, is_counted (False where
    its worker died and that is not put down to this task).
`task_buried`
    A task was dead-lettered; sent by whoever buried it.
    Arguments: sender (the task's name; empty for what is no task's message), task_id, reason,
    attempt (the last; 0: none was made), losses, exception (one line).
`task_skipped`
    ``on_conflict="skip"``: another task holds the object; sent by the process that skipped.
    Arguments: sender (the task), task_id, holder (a task id).
`task_running_out`
    An attempt's ``time_to_run_seconds`` are nearly up; sent in a thread of the process that runs
    it, in time for ``sender.touch()``.
    Arguments: sender (the task), task_id, attempt, seconds_left.
`worker_declared`
    The sweeper declared a worker dead; sent by whoever sweeps.
    Arguments: sender (the worker's id), cause ("lapsed" or "connection").
`pass_finished`
    One pass of the sweeper ended; sent by whoever swept.
    Arguments: sender (the app), report (a `model.SweepReport`).

They promise no delivery: a process that dies between the step and the signal sends none.
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

__all__ = [
    "pass_finished",
    "task_buried",
    "task_fenced",
    "task_lost",
    "task_running_out",
    "task_skipped",
    "worker_declared",
]

task_fenced = Signal(name="task_fenced", providing_args={"task_id", "attempt", "state"})
task_lost = Signal(
    name="task_lost", providing_args={"task_id", "attempt", "losses", "cause", "is_counted"}
)
task_buried = Signal(
    name="task_buried", providing_args={"task_id", "reason", "attempt", "losses", "exception"}
)
task_skipped = Signal(name="task_skipped", providing_args={"task_id", "holder"})
task_running_out = Signal(
    name="task_running_out", providing_args={"task_id", "attempt", "seconds_left"}
)
worker_declared = Signal(name="worker_declared", providing_args={"cause"})
pass_finished = Signal(name="pass_finished", providing_args={"report"})
