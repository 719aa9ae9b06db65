"""The events: each a function without a body, declared as `celery_reliable.events.event` says."""

from __future__ import annotations

from typing import Any

from celery_reliable.events.event import (
    ERROR,
    INFO,
    SIGNAL_ONLY,
    SILENT,
    WARNING,
    Values,
    event,
)
from celery_reliable.model import Cause, Reason, SweepReport


@event(WARNING, sender="name", celery_kind="task-lost")
def task_lost(
    *,
    app: Any,
    name: str,
    task_id: str,
    attempt: int,
    losses: int,
    is_counted: bool = True,
    cause: Cause,
    worker: str,
    exception: str = "",
) -> None:
    """An attempt ended without an outcome.  The worker's main process sends this, or the process
    that sweeps.  If the worker died, and the loss is not counted against this task, ``is_counted``
    is false.
    """


@event(SILENT, sender="name", celery_kind="task-recovered")
def task_recovered(
    *, app: Any, name: str, task_id: str, attempt: int, losses: int, worker: str
) -> None:
    """An attempt begins after a loss.  The process that runs the task sends this."""


@event(WARNING, sender="task", celery_kind="task-fenced")
def task_fenced(*, task: Any, task_id: str, attempt: int, state: str) -> None:
    """An attempt that is no longer current tried to end.  The process that ran it sends this.
    ``state`` is the state of the task: "taken" if another attempt runs it, "gone" if it has ended.
    """


@event(WARNING, sender="task", celery_kind="task-running-out", is_noted=False)
def task_running_out(*, task: Any, task_id: str, attempt: int, seconds_left: float) -> None:
    """An attempt's ``time_to_run_seconds`` are nearly up.  A thread of the process that runs it
    sends this, in time for ``sender.touch()``.
    """


@event(WARNING)
def task_turned_away(*, app: Any, name: str, task_id: str, worker: str) -> None:
    """A worker received a task that names other workers (``only_workers``).  It did not begin the
    task, which is sent to one of those workers.
    """


@event(INFO)
def task_waits_for_worker(*, app: Any, name: str, task_id: str, workers: str) -> None:
    """No worker that may run a task (``only_workers``) is alive.  The task waits in the ledger."""


def _of_burial(values: Values) -> int:
    # If the task itself failed, Celery has logged more.
    return WARNING if values["reason"] in (Reason.FAILED, Reason.REJECTED) else ERROR


@event(_of_burial, sender="name", celery_kind="task-buried")
def task_buried(
    *,
    app: Any,
    name: str,
    task_id: str,
    reason: Reason,
    attempt: int = 0,
    losses: int = 0,
    exception: str = "",
    is_failure_told: bool = False,
) -> None:
    """A task became a dead letter.  ``name`` is empty if the message is no task's; ``attempt`` is
    the last one (0: none was made).  Celery's ``task-failed`` is sent before this event, unless
    Celery itself sends one that says how the task ended.
    """


@event(INFO, sender="name")
def dead_letter_replayed(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator put a dead letter back into its queue."""


@event(INFO)
def dead_letter_discarded(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator removed a dead letter for good."""


@event(INFO, sender="task", celery_kind="task-skipped")
def task_skipped(*, task: Any, task_id: str, holder: str) -> None:
    """A task with ``on_conflict="skip"`` was skipped, as another task, ``holder``, has its object.
    The process that skipped it sends this.
    """


@event(INFO)
def task_struck(*, task: Any, task_id: str, order: str) -> None:
    """A task was about to begin that an operator has struck.  It waits until the order ends."""


@event(WARNING)
def stopped_by_order(*, task: Any, task_id: str, order: str) -> None:
    """A running task is stopped by an order.  That counts as no loss, and the task runs again."""


@event(INFO, sender="worker", is_noted=False)
def unbegun_given_back(*, worker: str, count: int) -> None:
    """A worker could not begin messages within ``GIVE_BACK_SECONDS``.  They went back to the front
    of their queue.
    """


@event(INFO)
def worker_registered(*, app: Any, worker: str) -> None:
    """A worker has its lease: for the first time, or anew after it was declared dead."""


@event(INFO)
def worker_left(*, app: Any, worker: str) -> None:
    """A worker that holds nothing any more ends, and gave back its lease."""


@event(WARNING, sender="worker", celery_kind="worker-declared")
def worker_declared_dead(*, app: Any, worker: str, cause: str) -> None:
    """The sweeper declared a worker dead.  ``cause`` is "lapsed" or "connection".  The process that
    sweeps sends this; Celery's event is sent only if that is a worker, in its own name.
    """


#: Fields of a report that do not show work.
_LOOKING = frozenset({"looked_at", "oldest_overdue_seconds", "duration_seconds", "is_full"})


def _of_pass(values: Values) -> int:
    return WARNING if values["report"].done().keys() - _LOOKING else SIGNAL_ONLY


@event(_of_pass, sender="app")
def pass_finished(*, app: Any, report: SweepReport) -> None:
    """A pass of the sweeper ended.  The process that swept sends this.  ``report`` is a
    `model.SweepReport`.  A pass that found nothing to do has no line in the log and no note.
    """


@event(WARNING)
def order_given(
    *,
    app: Any,
    kind: str,
    target: str,
    object_id: str | None,
    by: str,
    why: str,
    order: str,
) -> None:
    """An operator has paused a queue, struck a task or drained a worker."""


@event(WARNING)
def order_ended(*, app: Any, kind: str, target: str, by: str, order: str) -> None:
    """An order has ended; ``by`` is empty if its time was over.  What waited for it comes back."""
