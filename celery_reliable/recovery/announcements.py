"""What a burial owes Celery: a failure, stored and signalled as Celery itself would do it."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import Celery
from celery import signals as celery_signals
from celery import states as celery_states
from celery.app.task import Context
from celery.exceptions import TaskError, TaskRevokedError

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.exceptions import one_line
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import context_of
from celery_reliable.model import DeadLetter, Due, EndedTask, Reason, Record
from celery_reliable.results import (
    NOTHING,
    fail_again,
    fail_as_buried,
    is_of,
    mark,
    marks,
    may_have_lived_before,
    seen,
    tell_chord,
)

__all__ = [
    "announce",
    "backend_of",
    "has_ended_elsewhere",
    "is_in_chord",
    "store_revoked",
    "stored_elsewhere",
    "stored_end",
    "stored_task",
    "tell_stored_end",
    "try_to_announce",
    "try_to_store_revoked",
]


def stored_end(app: Celery, record: Record) -> str:
    """Return SUCCESS or FAILURE if Celery stored it for the attempt of *record* before its process
    died; else an empty text.

    Who waits for the task has seen that: it would be told something else if it ran again.  Some
    backends have no room for the name of the attempt that stored a result.  There only a first
    attempt is believed, and only if nobody had its id before; any other runs again.
    """
    meta = _stored_of(app, record)
    if meta is None or meta.get("status") not in (celery_states.SUCCESS, celery_states.FAILURE):
        return ""
    if marks(app.backend):
        is_own = is_of(meta, record)
    else:
        is_own = record.attempt == 1 and not may_have_lived_before(record)
    return str(meta["status"]) if is_own else ""


def stored_task(app: Celery, task_id: str) -> EndedTask | None:
    """Return what Celery's result backend has of a task that has ended; None: it tells nothing.

    For operators, of a task of which the ledger keeps nothing.  Its backend is the app's.
    """
    try:
        meta = app.backend.get_task_meta(task_id, cache=False)
    except Exception:
        # Backends raise what their drivers raise; one that is disabled has no results.
        return None
    if meta.get("status") not in celery_states.READY_STATES:
        return None
    return EndedTask(
        task_id,
        name=str(meta.get("name") or ""),
        outcome=str(meta["status"]),
        by="as the result backend has it",
        attempts=0,
        losses=0,
        published_ms=0,
        ended_ms=_ms_of(meta.get("date_done")),
    )


def _ms_of(moment: Any) -> int:
    """Return a time as results have it, in milliseconds; 0 where it is none."""
    try:
        found = datetime.fromisoformat(str(moment))
    except ValueError:
        return 0
    return int((found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def tell_stored_end(app: Celery, record: Record, end: str) -> tuple[Any, str] | None:
    """Tell the chord of a task of the end that its attempt has stored, and chain and errbacks of a
    FAILURE; return the stored result or error with its traceback, or None when that has to be done
    again.

    Nobody knows whether the attempt had called the errbacks, so they may be called twice.  What
    goes wrong is only logged.
    """
    context = context_of(app, record.message)
    is_failure = end == celery_states.FAILURE
    if not (is_failure or context.chord):
        return None, ""
    backend = backend_of(app, app.tasks.get(record.name))
    try:
        meta = backend.get_task_meta(record.task_id, cache=False)
        result, traceback = meta.get("result"), str(meta.get("traceback") or "")
        if is_failure and not isinstance(result, Exception):
            result = TaskError(str(result))
        if not tell_chord(backend, context, end, result):
            return None
        if is_failure:
            context.chord = None
            by = mark(record.epoch, record.attempt, record.token)
            fail_again(backend, context, result, traceback or None, by)
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.warning("stored_end_not_told id=%s error=%s", record.task_id, exc)
        return None
    return result, traceback


def is_in_chord(app: Celery, record: Record) -> bool:
    """Whether the task is a member of a chord, which is told only after the result is stored."""
    return bool(context_of(app, record.message).chord)


def stored_elsewhere(app: Celery, record: Record) -> str:
    """Return a name (`results.seen`) for a stored result that no attempt of ours stored; empty when
    the backend does not tell.

    Workers without the package run queued tasks too, and store results, but settle no record.
    """
    meta = _stored_of(app, record)
    return "" if meta is None else seen(meta)


def has_ended_elsewhere(record: Record, stored: str) -> bool:
    """Whether *stored*, of `stored_elsewhere`, proves that a queued task, or the canvas that
    replaced it, is over.

    A result proves nothing that was there when the task was last sent again or replaced.  The same
    holds for one that an earlier task of the same id may have left, until the task is sent again.
    """
    if stored in ("", NOTHING, record.stored):
        return False
    if record.stored or record.is_replaced:
        return True
    return not record.attempt and not may_have_lived_before(record)


def store_revoked(app: Celery, record: Record) -> None:
    """Store REVOKED for a revoked task that nobody runs, and tell its chord.

    Raises what the backend's driver raises.
    """
    task = app.tasks.get(record.name)
    context = context_of(app, record.message)
    backend = backend_of(app, task)
    if backend.get_state(record.task_id) in celery_states.READY_STATES:
        # It has just ended, or a worker that heard of the revocation has stored this.
        return
    error = TaskRevokedError("revoked")
    if not _ignores_result(task, context):
        backend.store_result(record.task_id, error, celery_states.REVOKED, request=context)
    tell_chord(backend, context, celery_states.REVOKED, error)


def try_to_store_revoked(app: Celery, record: Record) -> None:
    """Do the same as `store_revoked`; what goes wrong is only logged."""
    try:
        store_revoked(app, record)
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.error(
            "revocation_not_stored name=%s id=%s error=%s", record.name, record.task_id, exc
        )


def backend_of(app: Celery, task: Any) -> Any:
    """Return the result backend of a task; the app's for a task that is not registered (None)."""
    return task.backend if task is not None else app.backend


def _ignores_result(task: Any, context: Context) -> bool:
    """Whether a task's result is ignored; a publication's own ``ignore_result`` comes first."""
    ignored = context.get("ignore_result")
    return bool(getattr(task, "ignore_result", False) if ignored is None else ignored)


def _stored_of(app: Celery, record: Record) -> dict[str, Any] | None:
    """Return the result that is stored for a task; None when the backend does not tell."""
    task = app.tasks.get(record.name)
    if not record.is_replaced and (task is None or task.ignore_result):
        return None
    try:
        return dict(app.backend.get_task_meta(record.task_id, cache=False))
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.info("result_not_read id=%s error=%s", record.task_id, exc)
        return None


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
    if not isinstance(answer, answers.Postponed):
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
        store_result=(
            task is None
            or not _ignores_result(task, context)
            or bool(task.store_errors_even_if_ignored)
        ),
    )
    if not is_stored:
        return
    ledger.announce(letter)
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
    is_sealed = isinstance(ledger.announce(letter, reader), answers.Sealed)
    context = context_of(app, letter.message, is_sealed=is_sealed)
    if not is_sealed:
        ledger.announce(letter, reader, is_over=True)
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
