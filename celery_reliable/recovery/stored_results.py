"""What Celery's result backend says of a task that nobody runs, and what is stored there for it."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from celery import Celery
from celery import states as celery_states
from celery.app.task import Context
from celery.exceptions import TaskError, TaskRevokedError

from celery_reliable.log import logger
from celery_reliable.message import context_of
from celery_reliable.model import EndedTask, Record, State
from celery_reliable.results import (
    NOTHING,
    fail_again,
    is_of,
    mark,
    marks,
    may_have_lived_before,
    seen,
    tell_chord,
)

__all__ = [
    "backend_of",
    "fail_as_stored",
    "has_ended_elsewhere",
    "is_in_chord",
    "store_revoked",
    "stored_elsewhere",
    "stored_end",
    "stored_task",
    "try_to_store_revoked",
    "try_to_tell_chord",
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


def fail_as_stored(app: Celery, record: Record) -> tuple[Exception, str] | None:
    """Tell chord, chain and errbacks of a task of the FAILURE that its attempt has stored; return
    the error and its traceback, or None when that has to be done again.

    Nobody knows whether the attempt had called the errbacks, so they may be called twice.  What
    goes wrong is only logged.
    """
    context = context_of(app, record.message)
    backend = backend_of(app, app.tasks.get(record.name))
    try:
        meta = backend.get_task_meta(record.task_id, cache=False)
        error, traceback = meta.get("result"), str(meta.get("traceback") or "")
        if not isinstance(error, Exception):
            error = TaskError(str(error))
        if not tell_chord(backend, context, celery_states.FAILURE, error):
            return None
        context.chord = None
        by = mark(record.epoch, record.attempt, record.token)
        fail_again(backend, context, error, traceback or None, by)
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.warning("failure_not_told id=%s error=%s", record.task_id, exc)
        return None
    return error, traceback


def is_in_chord(app: Celery, record: Record) -> bool:
    """Whether the task is a member of a chord, which is told only after the result is stored."""
    return bool(context_of(app, record.message).chord)


def try_to_tell_chord(app: Celery, record: Record) -> bool:
    """Tell the chord of a task, if it has one, of the SUCCESS that is stored; True when the chord
    needs nothing more.  What goes wrong is only logged.
    """
    context = context_of(app, record.message)
    if not context.chord:
        return True
    backend = backend_of(app, app.tasks.get(record.name))
    try:
        result = backend.get_task_meta(record.task_id, cache=False).get("result")
        return tell_chord(backend, context, celery_states.SUCCESS, result)
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.warning("chord_not_told id=%s error=%s", record.task_id, exc)
        return False


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
    if record.stored or record.state is State.WAITING:
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
    if _stores_results(task, context):
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


def _stores_results(task: Any, context: Context) -> bool:
    """Whether the return value is stored; a publication's own ``ignore_result`` comes first."""
    ignored = context.get("ignore_result")
    return not (getattr(task, "ignore_result", False) if ignored is None else ignored)


def _stored_of(app: Celery, record: Record) -> dict[str, Any] | None:
    """Return the result that is stored for a task; None when the backend does not tell."""
    task = app.tasks.get(record.name)
    if record.state is not State.WAITING and (task is None or task.ignore_result):
        return None
    try:
        return dict(app.backend.get_task_meta(record.task_id, cache=False))
    except Exception as exc:
        # Backends raise what their drivers raise.
        logger.info("result_not_read id=%s error=%s", record.task_id, exc)
        return None
