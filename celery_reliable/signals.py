"""The signals of the package: `docs/events.rst` lists them, with their arguments.

Receivers are called as Celery's own signals call theirs: what one of them raises is logged.  They
promise no delivery: a process that dies between the step and the signal sends none.
"""

from __future__ import annotations

from celery_reliable import events

__all__ = [
    "dead_letter_replayed",
    "pass_finished",
    "task_buried",
    "task_fenced",
    "task_lost",
    "task_recovered",
    "task_skipped",
    "worker_declared_dead",
]


task_fenced = events.task_fenced.signal
task_lost = events.task_lost.signal
task_recovered = events.task_recovered.signal
task_buried = events.task_buried.signal
task_skipped = events.task_skipped.signal
dead_letter_replayed = events.dead_letter_replayed.signal
worker_declared_dead = events.worker_declared_dead.signal
pass_finished = events.pass_finished.signal
