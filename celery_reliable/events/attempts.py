"""Events of tasks: their attempts, their outcomes, and how they end."""

from __future__ import annotations

from typing import Any

from celery_reliable.events.declaring import DEBUG, ERROR, INFO, SILENT, WARNING, Values, declared
from celery_reliable.model import Cause, Reason

# -- how attempts end without an outcome


@declared(
    WARNING,
    sender="name",
    signal=("task_id", "attempt", "losses", "cause", "is_counted"),
    celery_event=("attempt", "losses", "cause", "is_counted", "worker"),
    note=("name", "task_id", "attempt", "losses", "cause", "is_counted", "worker"),
    counted_by="cause",
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
    """An attempt is over without an outcome: sent by the worker's main process, or by whoever
    sweeps.  ``is_counted`` is false where its worker died, and that is not put down to this task.
    """


@declared(
    SILENT,
    sender="name",
    signal=("task_id", "attempt", "losses"),
    celery_event=("attempt", "losses", "worker"),
    note=("name", "task_id", "attempt", "losses", "worker"),
)
def task_recovered(
    *, app: Any, name: str, task_id: str, attempt: int, losses: int, worker: str
) -> None:
    """An attempt begins that follows a loss; sent by the process that runs it."""


@declared(
    WARNING,
    sender="task",
    signal=("task_id", "attempt", "state"),
    celery_event=("attempt", "state"),
    note=("name", "task_id", "attempt", "state"),
)
def task_fenced(*, task: Any, task_id: str, attempt: int, state: str) -> None:
    """An attempt that is no longer current tried to end; sent by the process that ran it.
    ``state`` is that of the record: "taken" where another attempt has it, "gone" where it ended.
    """


@declared(
    WARNING,
    sender="task",
    signal=("task_id", "attempt", "seconds_left"),
    celery_event=("attempt", "seconds_left"),
)
def task_running_out(*, task: Any, task_id: str, attempt: int, seconds_left: float) -> None:
    """An attempt's ``time_to_run_seconds`` are nearly up; sent in a thread of the process that runs
    it, in time for ``sender.touch()``.
    """


@declared(INFO)
def attempt_released(*, task_id: str, attempt: int) -> None:
    """A worker that stops gave back an attempt. No loss is counted."""


@declared(WARNING)
def claim_not_released(*, task_id: str, error: Exception) -> None:
    """A task was claimed for a process that is busy meanwhile, and could not be released.  That is
    done when the worker next looks at its claims.
    """


@declared(WARNING)
def taken_claim_stopped(*, task_id: str, attempt: int, pid: int) -> None:
    """A worker kills the process of an attempt that was taken from it."""


@declared(WARNING)
def claim_without_process(*, task_id: str, attempt: int) -> None:
    """A worker found a claim of its own that none of its processes runs, and ended it."""


@declared(
    WARNING,
    sender="name",
    note=("name", "task_id", "worker"),
)
def task_turned_away(*, app: Any, name: str, task_id: str, worker: str) -> None:
    """A worker was delivered a task that names others (``only_workers``), and did not begin it. It
    is sent to one of those.
    """


@declared(
    INFO,
    sender="name",
    note=("name", "task_id", "workers"),
)
def task_waits_for_worker(*, app: Any, name: str, task_id: str, workers: str) -> None:
    """No worker that may run a task (``only_workers``) is alive: it waits in the ledger for one."""


# -- dead letters


def _of_burial(values: Values) -> int:
    # If the task itself failed, Celery has logged more.
    return WARNING if values["reason"] in (Reason.FAILED, Reason.REJECTED) else ERROR


@declared(
    WARNING,
    ERROR,
    choose=_of_burial,
    sender="name",
    signal=("task_id", "reason", "attempt", "losses", "exception"),
    celery_event=("attempt", "losses", "reason", "exception"),
    note=("name", "task_id", "attempt", "losses", "reason"),
    counted_by="reason",
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
    """A task was dead-lettered; sent by whoever buried it.  ``name`` is empty for what is no task's
    message, ``attempt`` the last one (0: none was made).  Celery's ``task-failed`` goes before its
    event, unless Celery sends one or another that says how the task ended.
    """


@declared(WARNING)
def burial_not_announced(*, task_id: str, error: Exception) -> None:
    """The failure of a dead-lettered task could not be stored or signalled. It is tried again
    later.
    """


@declared(INFO, sender="name", signal=("task_id",), note=("name", "task_id", "by"))
def dead_letter_replayed(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator put a dead letter back into its queue."""


@declared(INFO, note=("name", "task_id", "by"))
def dead_letter_discarded(*, app: Any, name: str, task_id: str, by: str = "") -> None:
    """An operator removed a dead letter for good."""


# -- objects


@declared(
    INFO,
    sender="task",
    signal=("task_id", "holder"),
    celery_event=("holder",),
    note=("name", "task_id", "holder"),
)
def task_skipped(*, task: Any, task_id: str, holder: str) -> None:
    """``on_conflict="skip"``: another task, ``holder``, has the object; sent by the process that
    skipped.
    """


@declared(INFO)
def object_held(*, task: Any, task_id: str, holder: str, on_conflict: str) -> None:
    """Another task has the object: this one waits for it, or fails."""


@declared(WARNING)
def conflict_not_published(*, task: Any, task_id: str, error: Exception) -> None:
    """A task that is to wait for its object could not be published again; it was given back."""


# -- how attempts begin


@declared(ERROR)
def not_claimed(*, task: Any, task_id: str, error: Exception) -> None:
    """The ledger's Redis refused a claim.  The delivery ends; the task does not."""


@declared(ERROR)
def task_unprotected(*, task: Any, task_id: str, error: Exception) -> None:
    """The ledger is away, and with ``FAIL_OPEN`` a task runs all the same."""


@declared(INFO)
def delivery_dropped(*, name: str = "", task_id: str, reply: str) -> None:
    """A delivery was ended without an attempt, as another one has the task, or it has ended."""


@declared(DEBUG)
def task_too_early(*, name: str, task_id: str, until: float) -> None:
    """A task of a limited rate waits in the ledger for its moment, seconds since the epoch."""


@declared(INFO)
def publication_adopted(*, name: str, task_id: str) -> None:
    """A worker without the package has published a canvas's last member: it is recorded now."""


# -- outcomes and results


@declared(WARNING)
def outcome_waits(*, task: Any, task_id: str, attempt: int, error: Exception) -> None:
    """The result backend is away; the attempt stores its outcome when that is back."""


@declared(WARNING)
def outcome_not_stored(*, task: Any, task_id: str, error: BaseException) -> None:
    """Celery could not store an outcome: the attempt ends without one."""


@declared(ERROR, with_traceback=True)
def attempt_failed_outside_body(*, task: Any, task_id: str, error: Exception) -> None:
    """Something around a task's body failed.  The attempt ends without an outcome."""


@declared(ERROR)
def attempt_left(*, task: Any, task_id: str, error: Exception) -> None:
    """The Redis user lacks a right to end an attempt. Its claim is ended when the right is back."""


@declared(INFO)
def settled_in_two_steps(*, task: Any, task_id: str, error: Exception) -> None:
    """A result may not be stored by the ledger's Redis user: it is stored apart, and then
    settled.
    """


@declared(ERROR)
def loss_not_counted(*, name: str, task_id: str, error: Exception) -> None:
    """A child process died while the ledger was away.  Its claim is found without a process."""


@declared(ERROR)
def end_not_recorded(*, name: str, task_id: str, error: Exception) -> None:
    """An attempt was stopped while the ledger was away.  Its claim is found without a process."""


@declared(ERROR)
def failure_not_stored(*, name: str, task_id: str, error: Exception) -> None:
    """Celery could not store the failure of an attempt that its main process ended."""


@declared(ERROR)
def revocation_not_stored(*, name: str, task_id: str, error: Exception) -> None:
    """Celery could not store REVOKED for a task that was revoked or has expired."""


@declared(WARNING)
def retry_not_stored(*, name: str, task_id: str, error: Exception) -> None:
    """Celery could not store RETRY for a task that is retried.  It runs again all the same."""


@declared(ERROR)
def revocation_not_recorded(*, name: str = "", task_id: str = "", error: Exception) -> None:
    """The ledger could not be told of a revocation.  Workers that hear it do not run the task."""


@declared(INFO)
def result_not_read(*, task_id: str, error: Exception) -> None:
    """A stored result could not be read: whether the task has ended elsewhere is not known."""


@declared(WARNING)
def chord_not_told(*, task_id: str, error: Exception) -> None:
    """A chord could not be told of a member that has ended.  It is told later."""


@declared(WARNING)
def failure_not_told(*, task_id: str, error: Exception) -> None:
    """An attempt stored its failure and died. Its chord, chain or errbacks could not be told of it.
    They are told later.
    """


@declared(ERROR)
def chord_given_up(*, task_id: str, error: Exception) -> None:
    """A chord could not be told of a member that has ended, and nobody tells it later."""


# -- orders of operators


@declared(
    INFO,
    note=("name", "task_id", "order"),
)
def task_struck(*, task: Any, task_id: str, order: str) -> None:
    """A task was to begin that an operator has struck: it is parked until the order ends."""


@declared(WARNING, note=("name", "task_id", "order"))
def stopped_by_order(*, task: Any, task_id: str, order: str) -> None:
    """What runs is stopped, as an order says so; that counts as no loss, and it runs again."""


@declared(WARNING)
def not_stopped(*, name: str, task_id: str, pool: str) -> None:
    """A task was revoked as it ran, in a pool that can stop nothing: it runs to its end."""
