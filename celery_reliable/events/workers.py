"""Events of workers: leases, deaths, passes of the sweeper, and the servers they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery_reliable.events.declaring import DEBUG, ERROR, INFO, SILENT, WARNING, Values, declared
from celery_reliable.model import SweepReport

# -- starting and stopping


def _of_finding(values: Values) -> int:
    return INFO if values["severity"] == "info" else WARNING


@declared(INFO, WARNING, choose=_of_finding)
def finding(*, code: str, check: str, severity: str, message: str, hint: str) -> None:
    """Something about settings, app or server is worth knowing, or may be wrong."""


@declared(ERROR)
def ledger_awaited(*, seconds: float, retry: int, of: int | str, error: Exception) -> None:
    """A worker that starts waits for the ledger's Redis, as Celery waits for a broker."""


@declared(INFO)
def broker_keeps_deliveries(*, scheme: str) -> None:
    """The broker is no Redis: it keeps what is delivered by itself."""


@declared(WARNING)
def broker_transport_kept(*, transport: str) -> None:
    """``broker_transport`` is set to one of the project's: its deliveries are not protected."""


@declared(WARNING)
def pool_is_prefork(*, worker: str) -> None:
    """Processes of ``celery_reliable.pool:TaskPool`` cannot take messages by themselves: the queues
    are not lists in the ledger's own database, or nobody can tell that they are (another user, host
    or list of Sentinels in the URLs, a credential provider).  It works as a prefork pool.
    """


@declared(WARNING)
def shift_not_ended(*, error: Exception) -> None:
    """A process was lost that took messages by itself, and what it ran could not be ended at once.
    A look at the worker's claims ends it.
    """


@declared(WARNING)
def shifts_not_seen(*, error: Exception) -> None:
    """A worker could not find out what processes of its pool have taken by themselves, for a remote
    command or a stop.
    """


@declared(WARNING)
def shift_not_heard(*, error: Exception) -> None:
    """What a process of the pool told of the tasks that it takes by itself could not be passed on:
    Celery's events of some are missing.
    """


@declared(INFO, note=("worker",))
def worker_registered(*, app: Any, worker: str) -> None:
    """A worker has its lease: for the first time, or anew after it was declared dead."""


@declared(WARNING)
def worker_not_registered(*, worker: str, error: Exception) -> None:
    """A worker that starts cannot take its lease.  It tries again."""


@declared(WARNING)
def no_witness(*, worker: str, seconds_to_recovery: float, reason: str) -> None:
    """The server does not show this worker's connection. Only its lease tells whether it lives."""


@declared(WARNING)
def tasks_run_to_their_end(*, count: int) -> None:
    """A cold shutdown stops no task, as the pool cannot."""


@declared(INFO, note=("worker",))
def worker_left(*, app: Any, worker: str) -> None:
    """A worker ends that holds nothing any more, and gave back its lease."""


@declared(WARNING)
def worker_left_something(*, worker: str, messages: int) -> None:
    """A worker ends that still holds messages or claims.  They are recovered."""


@declared(WARNING)
def worker_not_deregistered(*, worker: str, error: Exception) -> None:
    """A worker ends and could not give back its lease. It will be found dead."""


@declared(WARNING)
def sign_not_written(*, path: str, error: Exception) -> None:
    """A worker could not say in ``PROBE_DIRECTORY`` how it is.  Told once; it tries again."""


# -- leases and deaths


@declared(WARNING)
def lease_not_renewed(*, worker: str, error: Exception) -> None:
    """A worker's lease could not be renewed; told once in ten seconds.  It tries again."""


@declared(ERROR)
def main_loop_stalled(*, worker: str) -> None:
    """A worker's main loop has not turned for ``STALL_SECONDS``: its lease is not renewed."""


@declared(ERROR, with_traceback=True)
def heartbeat_failed(*, worker: str, error: Exception) -> None:
    """A beat failed in a way that nobody expected.  The next one is tried."""


@declared(
    WARNING,
    sender="worker",
    signal=("cause",),
    celery_event=("worker", "cause"),
    celery_kind="worker-declared",
    note=("worker", "cause"),
)
def worker_declared_dead(*, app: Any, worker: str, cause: str) -> None:
    """The sweeper declared a worker dead, ``cause``: "lapsed" or "connection"; sent by whoever
    sweeps, and Celery's event only by a worker, in its own name.
    """


@declared(WARNING)
def worker_was_declared_dead(*, worker: str) -> None:
    """A worker that lives finds itself declared dead: what it held is taken from it."""


# -- passes


#: Fields of a report that do not show work: a pass with nothing else has no line.
_LOOKING = frozenset({"looked_at", "oldest_overdue_seconds", "duration_seconds", "is_full"})


def _of_pass(values: Values) -> int:
    return WARNING if _done(values["report"]).keys() - _LOOKING else SILENT


def _done(report: SweepReport) -> dict[str, float]:
    return {name: value for name, value in report.as_dict().items() if value}


def _has_worked(values: Values) -> bool:
    return _of_pass(values) != SILENT


@declared(
    WARNING,
    choose=_of_pass,
    sender="app",
    signal=("report",),
    note=("report",),
    noted_if=_has_worked,
    shown={"report": _done},
)
def pass_finished(*, app: Any, report: SweepReport) -> None:
    """A pass of the sweeper ended; sent by whoever swept.  ``report`` is a `model.SweepReport`.  A
    pass that found nothing to do has no line in the log.
    """


@declared(WARNING, with_traceback=True)
def pass_failed(*, error: Exception) -> None:
    """A pass broke off.  The next one goes on."""


@declared(ERROR, with_traceback=True)
def not_recovered(*, worker: str, error: Exception) -> None:
    """A pass could not deal with a dead worker, and went on.  The next one tries again."""


@declared(ERROR, with_traceback=True)
def not_lost(*, task_id: str, worker: str, error: Exception) -> None:
    """A pass could not end an attempt of a dead worker, and went on.  The next one tries again."""


@declared(ERROR, with_traceback=True)
def not_given_back(*, unacked: str, tag: str, error: Exception) -> None:
    """A pass could not give a message back, and went on.  The next one tries again."""


@declared(ERROR, with_traceback=True)
def not_handled(*, task_id: str, error: Exception) -> None:
    """A pass could not deal with a task that was due, and went on.  It is due again later."""


@declared(ERROR, with_traceback=True)
def not_looked_at_ahead(*, task_id: str, error: Exception) -> None:
    """A pass could not look at a task before its time, and went on.  It is looked at when due."""


@declared(WARNING)
def dead_letters_trimmed(*, count: int, reasons: Mapping[str, int]) -> None:
    """A pass removed dead letters that were too many or too old, and so many for each reason."""


@declared(WARNING)
def clock_stepped_back() -> None:
    """The clock of the ledger's Redis was set back. The times of due records were set back too."""


@declared(WARNING)
def broker_is_another_or_was_emptied() -> None:
    """The queues may have been lost: what should be in them is looked at, and sent again."""


# -- connections and processes


@declared(WARNING)
def ledger_waiting(*, operation: str, seconds: float, address: str, error: str) -> None:
    """Somebody waits for the ledger's Redis; told once in ten seconds."""


@declared(INFO)
def forked_beside_pass(*, waited_seconds: float) -> None:
    """A process was forked while a pass ran, which took too long to be waited for."""


# -- orders of operators


@declared(
    WARNING,
    note=("kind", "target", "object_id", "by", "why", "order"),
    counted_by="kind",
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


@declared(WARNING, note=("kind", "target", "by", "order"), counted_by="kind")
def order_ended(*, app: Any, kind: str, target: str, by: str, order: str) -> None:
    """An order has ended; ``by`` is empty if its time was over.  What waited for it comes back."""


@declared(DEBUG)
def given_back_by_order(*, name: str, task_id: str) -> None:
    """A worker gives back what it had fetched and not begun, as an order holds it back."""


@declared(WARNING)
def fetched_not_given_back(*, name: str, task_id: str, error: Exception) -> None:
    """The same could not be done, as the connection was lost: the broker returns the message."""
