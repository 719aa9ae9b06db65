"""The claim of one delivery, which the main process ends as the delivery's own process cannot."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from celery import states

from celery_reliable.app import reliable_of
from celery_reliable.attempt import bury
from celery_reliable.compat.tracer import has_own_hook
from celery_reliable.context import current_worker
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable
from celery_reliable.ledger import answers
from celery_reliable.log import logger
from celery_reliable.message import Stamp
from celery_reliable.model import Reason, Record, State, SweepReport
from celery_reliable.options import is_unique
from celery_reliable.recovery import Losses, stored_end
from celery_reliable.worker.children import is_running_child
from celery_reliable.worker.patience import PATIENCE_SECONDS

__all__ = [
    "conclude",
    "end_over_limit",
    "end_revoked",
    "end_stopped",
    "ending",
    "is_ending",
    "may_fail",
    "own_record",
]

#: The tokens of attempts that are over and whose end is being told.
_ending: set[str] = set()


@contextmanager
def ending(token: str) -> Iterator[None]:
    """Let `is_ending` be true of a claim's token."""
    _ending.add(token)
    try:
        yield
    finally:
        _ending.discard(token)


def is_ending(token: str) -> bool:
    """Whether the main process is about to end an attempt; Celery has forgotten its request."""
    return token in _ending


def own_record(request: Any) -> Record | None:
    """Return the record of a delivery's task if it is running by this very delivery.

    Raises LedgerUnavailable and LedgerRefused, as all that follows where nothing else is said.
    """
    worker = current_worker()
    ledger = reliable_of(request.app).ledger
    record = ledger.find(request.id, patience_seconds=PATIENCE_SECONDS)
    if worker is None or record is None or record.state is not State.RUNNING:
        return None
    is_own = record.token == request.reliable_token
    return record if is_own and record.owner.rpartition(".")[0] == worker.base else None


def may_fail(request: Any) -> bool:
    """Whether an attempt whose process is gone may be told of as failed: it has neither settled nor
    stored an outcome.  False also where the ledger does not say.
    """
    with suppress(LedgerUnavailable, LedgerRefused):
        record = own_record(request)
        return record is not None and not stored_end(request.app, record)
    return False


def conclude(request: Any) -> None:
    """Let no call of a unique task be answered with a failure that is about to be stored.  Errors
    of the ledger are ignored.
    """
    if not is_unique(request.task):
        return
    with suppress(LedgerUnavailable, LedgerRefused):
        record = own_record(request)
        if record is not None:
            ledger = reliable_of(request.app).ledger
            ledger.conclude(record.claim, patience_seconds=PATIENCE_SECONDS)


def end_stopped(request: Any) -> None:
    """Settle what was revoked, or release what is to run again, now that its process is gone.
    What had stored its outcome by then has ended with that.  Errors of the ledger are only logged.
    """
    reliable = reliable_of(request.app)
    with _logged(request):
        record = own_record(request)
        if record is None:
            return
        if request.is_revoked:
            reliable.ledger.settle(
                record.claim, outcome=states.REVOKED, patience_seconds=PATIENCE_SECONDS
            )
            return
        if Losses(request.app, reliable.ledger).has_ended_as_stored(record.claim, SweepReport()):
            return
        reliable.ledger.release(
            record.claim,
            due_in_ms=reliable.config.sweep_ms,
            is_unsent=request.reliable_is_let_go,
            patience_seconds=PATIENCE_SECONDS,
        )


def end_over_limit(request: Any, exc_info: Any, exc: Exception, *, is_owed: bool) -> None:
    """Call the hooks of an attempt whose time limit was up, as Celery does, then end it.

    The main process has stored its failure, or owes that (*is_owed*).  Errors of the ledger are
    only logged.
    """
    task, told = request.task, (request.id, request.args, request.kwargs)
    try:
        task.on_failure(exc, *told, exc_info)
        if has_own_hook(task, "after_return"):
            task.after_return(states.FAILURE, exc, *told, None)
    finally:
        _end_failed(request, exc, is_owed=is_owed)


def _end_failed(request: Any, exc: Exception, *, is_owed: bool) -> None:
    with _logged(request):
        record = own_record(request)
        if record is None:
            return
        # What is owed can only be told from a dead letter.
        if type(request.task).dead_letter or is_owed:
            bury(
                request.task,
                record.claim,
                Reason.TIME_LIMIT,
                exc,
                is_owed=is_owed,
                patience_seconds=PATIENCE_SECONDS,
            )
        else:
            ledger = reliable_of(request.app).ledger
            ledger.settle(record.claim, outcome=states.FAILURE, patience_seconds=PATIENCE_SECONDS)


def end_revoked(request: Any, *, expired: bool) -> None:
    """End the record of a task that was revoked, or whose publication has *expired*.

    A signal does not end an attempt at once, and a task may take its time or not mind it at all.
    Until its process is gone, or it has ended by itself, claim and lock are its own.
    """
    ledger = reliable_of(request.app).ledger
    # A revocation means the id, whichever publication of it; an expiry means this one.
    if expired:
        answer = ledger.cancel(
            request.id,
            epoch=Stamp.of(request.request_dict).epoch,
            by="it had expired",
            patience_seconds=PATIENCE_SECONDS,
        )
    else:
        answer = ledger.revoke(request.id, patience_seconds=PATIENCE_SECONDS)
    if isinstance(answer, answers.Running) and not is_running_child(request.worker_pid):
        record = own_record(request)
        if record is not None:
            ledger.settle(record.claim, outcome=states.REVOKED, patience_seconds=PATIENCE_SECONDS)


@contextmanager
def _logged(request: Any) -> Iterator[None]:
    try:
        yield
    except (LedgerUnavailable, LedgerRefused) as error:
        logger.error("end_not_recorded name=%s id=%s error=%s", request.name, request.id, error)
