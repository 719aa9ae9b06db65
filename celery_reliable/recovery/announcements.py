"""What a burial owes Celery: a failure, stored and signalled as Celery itself would do it."""

from __future__ import annotations

import secrets
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery
from celery import signals as celery_signals
from celery.app.task import Context

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import one_line
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import context_of
from celery_reliable.model import DeadLetter, Due, Reason
from celery_reliable.recovery.stored_results import backend_of
from celery_reliable.results import fail_as_buried

__all__ = ["announce", "try_to_announce"]


def announce(app: Celery, ledger: Ledger, task_id: str, due_ms: str = "") -> None:
    """Store FAILURE for a buried task, call its errbacks, and tell its chord and the signals.

    Nothing happens when somebody else is doing it, or has replayed the letter.  *due_ms*: when the
    announcement was seen to be due; by default when the task was buried, which is when it is due
    first.  Raises what the backend's driver raises; then it is due again after QUEUED_SECONDS.
    """
    letter = ledger.dead_letter(task_id)
    if letter is None or not letter.is_owed:
        return
    # Of several that try, one moves the time, and that one announces.
    turn = Due(task_id, due_ms or str(letter.buried_ms))
    answer = ledger.postpone(turn, due_in_ms=reliable_of(app).config.queued_ms)
    if not isinstance(answer, answers.Postponed) and not answer.is_repeated:
        return
    task = app.tasks.get(letter.name)
    context = _context_of(app, ledger, letter)
    error = _error_of(letter)
    is_stored = fail_as_buried(
        app,
        backend_of(app, task),
        letter,
        context,
        error,
        store_result=_stores_errors(task, context),
    )
    if not is_stored:
        return
    ledger.announced(task_id, letter.buried_ms)
    if task is not None:
        _tell_failure(task, task_id, error, context)
    events.task_buried(
        app=app,
        name=letter.name,
        task_id=task_id,
        reason=letter.reason,
        attempt=letter.attempts,
        losses=letter.losses,
        exception=one_line(error),
    )


def try_to_announce(app: Celery, ledger: Ledger, task_id: str) -> None:
    """Do the same as `announce`; when that is not possible now, a later pass does it."""
    try:
        announce(app, ledger, task_id)
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.warning("burial_not_announced id=%s error=%s", task_id, exc)


def _context_of(app: Celery, ledger: Ledger, letter: DeadLetter) -> Context:
    """Return the request of a dead letter.

    A message that killed its workers may kill this process when it is decoded.  So the ledger notes
    who decodes it, and one that killed its reader is sealed: its body is not decoded again.
    """
    if letter.reason is not Reason.LOST:
        return context_of(app, letter.message)
    reader = secrets.token_hex(8)
    is_sealed = isinstance(ledger.read(letter, reader), answers.Sealed)
    context = context_of(app, letter.message, is_sealed=is_sealed)
    if not is_sealed:
        ledger.read(letter, reader, is_over=True)
    return context


def _error_of(letter: DeadLetter) -> Exception:
    """Return the error that Celery stores for a dead letter."""
    error: Exception = WorkerLostError(
        f"lost {letter.losses} times ({letter.exception}): every attempt ended without an "
        "outcome; dead-lettered"
    )
    if letter.reason is Reason.TIME_LIMIT:
        error = TimeLimitExceeded(letter.exception)
    return error


def _stores_errors(task: Any, context: Context) -> bool:
    """Whether a task's failure is stored; a publication's own ``ignore_result`` comes first."""
    if task is None:
        return True
    ignored = context.get("ignore_result")
    ignored = task.ignore_result if ignored is None else ignored
    return not ignored or bool(task.store_errors_even_if_ignored)


def _tell_failure(task: Any, task_id: str, error: Exception, context: Context) -> None:
    """Send Celery's own signal, with the request where receivers look for it."""
    task.request_stack.push(context)
    try:
        celery_signals.task_failure.send(
            sender=task,
            task_id=task_id,
            exception=error,
            args=context.args,
            kwargs=context.kwargs,
            traceback=None,
            einfo=None,
        )
    finally:
        task.request_stack.pop()
