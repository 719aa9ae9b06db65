"""The events: each a function without a body, declared as `celery_reliable.events.event` says."""

from __future__ import annotations

from typing import Any

from celery_reliable.events.event import ERROR, INFO, SILENT, WARNING, Outlets, Values
from celery_reliable.model import Cause, Reason, SweepReport


@Outlets(
    WARNING,
    sender="name",
    signal=("task_id", "attempt", "losses", "cause", "is_counted"),
    celery_event=("attempt", "losses", "cause", "is_counted", "worker"),
    note=("name", "task_id", "attempt", "losses", "cause", "is_counted", "worker"),
)
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


@Outlets(
    SILENT,
    sender="name",
    signal=("task_id", "attempt", "losses"),
    celery_event=("attempt", "losses", "worker"),
    note=("name", "task_id", "attempt", "losses", "worker"),
)
def task_recovered(
    *, app: Any, name: str, task_id: str, attempt: int, losses: int, worker: str
) -> None:
    """An attempt begins after a loss.  The process that runs the task sends this."""


@Outlets(
    WARNING,
    sender="task",
    signal=("task_id", "attempt", "state"),
    celery_event=("attempt", "state"),
    note=("name", "task_id", "attempt", "state"),
)
def task_fenced(*, task: Any, task_id: str, attempt: int, state: str) -> None:
    """An attempt that is no longer current tried to end.  The process that ran it sends this.
    ``state`` is the state of the task: "taken" if another attempt runs it, "gone" if it has ended.
    """


@Outlets(
    WARNING,
    sender="task",
    signal=("task_id", "attempt", "seconds_left"),
    celery_event=("attempt", "seconds_left"),
)
def task_running_out(*, task: Any, task_id: str, attempt: int, seconds_left: float) -> None:
    """An attempt's ``time_to_run_seconds`` are nearly up.  A thread of the process that runs it
    sends this, in time for ``sender.touch()``.
    """


@Outlets(WARNING, note=("name", "task_id", "worker"))
def task_turned_away(*, app: Any, name: str, task_id: str, worker: str) -> None:
    """A worker received a task that names other workers (``only_workers``).  It did not begin the
    task, which is sent to one of those workers.
    """


@Outlets(INFO, note=("name", "task_id", "workers"))
def task_waits_for_worker(*, app: Any, name: str, task_id: str, workers: str) -> None:
    """No worker that may run a task (``only_workers``) is alive.  The task waits in the ledger."""


def _of_burial(values: Values) -> int:
    # If the task itself failed, Celery has logged more.
    return WARNING if values["reason"] in (Reason.FAILED, Reason.REJECTED) else ERROR


@Outlets(
    _of_burial,
    levels=(WARNING, ERROR),
    sender="name",
    signal=("task_id", "reason", "attempt", "losses", "exception"),
    celery_event=("attempt", "losses", "reason", "exception"),
    note=("name", "task_id", "attempt", "losses", "reason"),
)
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


@Outlets(INFO, sender="name", signal=("task_id",), note=("name", "task_id", "by"))
def dead_letter_replayed(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator put a dead letter back into its queue."""


@Outlets(INFO, note=("name", "task_id", "by"))
def dead_letter_discarded(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator removed a dead letter for good."""


@Outlets(
    INFO,
    sender="task",
    signal=("task_id", "holder"),
    celery_event=("holder",),
    note=("name", "task_id", "holder"),
)
def task_skipped(*, task: Any, task_id: str, holder: str) -> None:
    """A task with ``on_conflict="skip"`` was skipped, as another task, ``holder``, has its object.
    The process that skipped it sends this.
    """


@Outlets(INFO, note=("name", "task_id", "order"))
def task_struck(*, task: Any, task_id: str, order: str) -> None:
    """A task was about to begin that an operator has struck.  It waits until the order ends."""


@Outlets(WARNING, note=("name", "task_id", "order"))
def stopped_by_order(*, task: Any, task_id: str, order: str) -> None:
    """A running task is stopped by an order.  That counts as no loss, and the task runs again."""


@Outlets(INFO, sender="worker", signal=("count",))
def unbegun_given_back(*, worker: str, count: int) -> None:
    """A worker could not begin messages within ``GIVE_BACK_SECONDS``.  They went back to the front
    of their queue.
    """


@Outlets(INFO, note=("worker",))
def worker_registered(*, app: Any, worker: str) -> None:
    """A worker has its lease: for the first time, or anew after it was declared dead."""


@Outlets(INFO, note=("worker",))
def worker_left(*, app: Any, worker: str) -> None:
    """A worker that holds nothing any more ends, and gave back its lease."""


@Outlets(
    WARNING,
    sender="worker",
    signal=("cause",),
    celery_event=("worker", "cause"),
    celery_kind="worker-declared",
    note=("worker", "cause"),
)
def worker_declared_dead(*, app: Any, worker: str, cause: str) -> None:
    """The sweeper declared a worker dead.  ``cause`` is "lapsed" or "connection".  The process that
    sweeps sends this; Celery's event is sent only if that is a worker, in its own name.
    """


#: Fields of a report that do not show work.
_LOOKING = frozenset({"looked_at", "oldest_overdue_seconds", "duration_seconds", "is_full"})


def _of_pass(values: Values) -> int:
    return WARNING if values["report"].done().keys() - _LOOKING else SILENT


@Outlets(_of_pass, levels=(WARNING,), sender="app", signal=("report",), note=("report",))
def pass_finished(*, app: Any, report: SweepReport) -> None:
    """A pass of the sweeper ended.  The process that swept sends this.  ``report`` is a
    `model.SweepReport`.  A pass that found nothing to do has no line in the log and no note.
    """


@Outlets(
    WARNING,
    note=("kind", "target", "object_id", "by", "why", "order"),
)
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


@Outlets(WARNING, note=("kind", "target", "by", "order"))
def order_ended(*, app: Any, kind: str, target: str, by: str, order: str) -> None:
    """An order has ended; ``by`` is empty if its time was over.  What waited for it comes back."""
