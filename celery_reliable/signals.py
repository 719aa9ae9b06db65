"""The signals of the package: `docs/events.rst` lists them, with their arguments.

Receivers are called as Celery's own signals call theirs: what one of them raises is logged.  They
promise no delivery: a process that dies between the step and the signal sends none.
"""

from __future__ import annotations

from typing import Any

from celery.utils.dispatch import Signal

from celery_reliable import events

__all__ = [
    "dead_letter_replayed",
    "pass_finished",
    "task_buried",
    "task_fenced",
    "task_lost",
    "task_recovered",
    "task_running_out",
    "task_skipped",
    "unbegun_given_back",
    "worker_declared",
    "worker_declared_dead",
]


def _signal_of(event: events.Event[Any]) -> Signal:
    """Give an event the signal that it is declared to have."""
    assert event.in_signal is not None
    event.signal = Signal(name=event.name, providing_args=set(event.in_signal))
    return event.signal


task_fenced = _signal_of(events.task_fenced)
task_lost = _signal_of(events.task_lost)
task_recovered = _signal_of(events.task_recovered)
task_buried = _signal_of(events.task_buried)
task_skipped = _signal_of(events.task_skipped)
task_running_out = _signal_of(events.task_running_out)
dead_letter_replayed = _signal_of(events.dead_letter_replayed)
worker_declared_dead = _signal_of(events.worker_declared_dead)
#: The same, by its shorter name.
worker_declared = worker_declared_dead
unbegun_given_back = _signal_of(events.unbegun_given_back)
pass_finished = _signal_of(events.pass_finished)
