"""The events of the package.  Receivers are called as Celery's own signals call theirs: errors are logged.

===================  ===============================================================  ======================================
signal               when, and in which process                                       arguments
===================  ===============================================================  ======================================
task_fenced          an attempt that is no longer current tried to end (child)        sender task, task_id, attempt, state
task_lost            a loss was counted (worker's main process, or who sweeps)        sender name, task_id, attempt, losses,
                                                                                      cause
task_buried          a task was dead-lettered (child, main process, or who sweeps)    sender name, task_id, reason
task_skipped         ``on_conflict="skip"``: another task holds the object (child)    sender task, task_id, holder
worker_declared      the sweeper declared a worker dead (who sweeps)                  sender worker, cause
pass_finished        one pass of the sweeper ended (who sweeps)                       sender app, report
===================  ===============================================================  ======================================

They promise no delivery: a process that dies between the step and the signal sends none.
"""

from __future__ import annotations

from celery.utils.dispatch import Signal

__all__ = [
    "pass_finished",
    "task_buried",
    "task_fenced",
    "task_lost",
    "task_skipped",
    "worker_declared",
]

task_fenced = Signal(name="task_fenced", providing_args={"task_id", "attempt", "state"})
task_lost = Signal(name="task_lost", providing_args={"task_id", "attempt", "losses", "cause"})
task_buried = Signal(name="task_buried", providing_args={"task_id", "reason"})
task_skipped = Signal(name="task_skipped", providing_args={"task_id", "holder"})
worker_declared = Signal(name="worker_declared", providing_args={"cause"})
pass_finished = Signal(name="pass_finished", providing_args={"report"})
