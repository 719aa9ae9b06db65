"""The attempt of a child process that died: a loss, unless it had ended before."""

from __future__ import annotations

from typing import Any

from celery import states
from celery.worker import state

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.attempt import MESSAGE, claim_or_record
from celery_reliable.broker import GOES_FIRST
from celery_reliable.compat.notes import note
from celery_reliable.context import current_worker
from celery_reliable.ledger import answers
from celery_reliable.message import Stamp, text_as_sent
from celery_reliable.model import Cause, Claim, ClaimRequest
from celery_reliable.options import keep_ms, task_ref
from celery_reliable.recovery import is_in_chord, stored_end, try_to_announce
from celery_reliable.worker.child_deaths import how_it_ended
from celery_reliable.worker.own_claim import own_record
from celery_reliable.worker.patience import PATIENCE_SECONDS

__all__ = ["end_lost"]


def end_lost(request: Any, exc: BaseException) -> None:
    """Count the loss of a request's process, and let go of its message.

    Raises LedgerUnavailable and LedgerRefused; then nothing has been let go of.
    """
    reliable = reliable_of(request.app)
    ledger, config = reliable.ledger, reliable.config
    record = own_record(request)
    claim = _claim_for_dead(request) if record is None else record.claim
    if claim is None:
        # It had settled, or published itself again, or was taken from this worker.
        state.task_ready(request)
        request.acknowledge()
        return
    record = record or ledger.find(request.id, patience_seconds=PATIENCE_SECONDS)
    end = "" if record is None else stored_end(request.app, record)
    if record is not None and end:
        # A chord has to be told of it first, or errbacks, which may take long.  Then the claim
        # stays, and is found as no process runs it.
        if end == states.SUCCESS and not is_in_chord(request.app, record):
            keep = keep_ms(request.task)
            ledger.settle(
                claim,
                outcome=states.SUCCESS,
                by="its result was stored already",
                keep_ms=keep,
                patience_seconds=PATIENCE_SECONDS,
            )
        state.task_ready(request)
        request.acknowledge()
        return
    answer = ledger.lose(
        claim,
        Cause.CHILD_LOST,
        max_losses=config.max_losses,
        due_in_ms=config.sweep_ms,
        detail=how_it_ended(exc, request.worker_pid),
        is_unsent=request.reliable_is_let_go,
        patience_seconds=PATIENCE_SECONDS,
    )
    # Before the burial is announced, as the result backend may be away.
    state.task_ready(request)
    if isinstance(answer, answers.Queued):
        if answer.losses == 1:
            # Once: a task that is lost again waits behind the others.
            note(request.message, GOES_FIRST, True)
        request.reject(requeue=True)
    else:
        request.acknowledge()
    if isinstance(answer, answers.Queued | answers.Spent):
        events.task_lost(
            app=request.app,
            name=request.task.name,
            task_id=request.id,
            attempt=claim.attempt,
            losses=answer.losses,
            cause=Cause.CHILD_LOST,
            worker=claim.worker,
            exception=str(exc),
        )
    if isinstance(answer, answers.Spent):
        try_to_announce(request.app, ledger, request.id)


def _claim_for_dead(request: Any) -> Claim | None:
    """Claim in the name of a child that died before it could; None when that may not be.

    Otherwise a message that kills its process before the claim (as it is decoded, say) would never
    be counted.
    """
    worker = current_worker()
    if worker is None or request.worker_pid is None:
        return None
    stamp = Stamp.of(request.request_dict)
    told = (request.request_dict.get("properties") or {}).get(MESSAGE)
    made = ClaimRequest(
        task_ref(request.task, request.id, request.request_dict),
        stamp.epoch,
        stamp.generation,
        worker=worker.id,
        token=request.reliable_token,
        pid=request.worker_pid,
        is_over=True,
    )
    answer, _ = claim_or_record(
        reliable_of(request.app).ledger,
        made,
        lambda: str(told or text_as_sent(request.message)),
        patience_seconds=PATIENCE_SECONDS,
    )
    if isinstance(answer, answers.NoLease):
        # What this worker held belongs to the sweeper now.
        request.reject(requeue=True)
    if not isinstance(answer, answers.Claimed):
        return None
    return made.claim(answer.attempt, answer.losses)
