"""What a burial owes Celery: a failure as Celery itself would store and signal it."""

from __future__ import annotations

from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery import signals as celery_signals
from celery.app.task import Context

from celery_reliable.model import DeadLetter, Reason

__all__ = ["error_of", "stores_errors", "stores_results", "tell_failure"]


def error_of(letter: DeadLetter) -> Exception:
    """Return the error that Celery is to store for a dead letter."""
    error: Exception
    if letter.reason is Reason.TIME_LIMIT:
        error = TimeLimitExceeded(letter.exception)
    else:
        error = WorkerLostError(
            f"lost {letter.losses} times ({letter.exception}): every attempt ended without an "
            "outcome; dead-lettered"
        )
    return error


def stores_results(task: Any, context: Context) -> bool:
    """Whether what a task returns is stored; each publication may say it."""
    ignored = context.get("ignore_result")
    return not (getattr(task, "ignore_result", False) if ignored is None else ignored)


def stores_errors(task: Any, context: Context) -> bool:
    """Whether a task's failure is stored."""
    if task is None:
        return True
    # Each publication may say it, as in Celery's own Request.
    ignored = context.get("ignore_result")
    ignored = task.ignore_result if ignored is None else ignored
    return not ignored or bool(task.store_errors_even_if_ignored)


def tell_failure(task: Any, task_id: str, error: Exception, context: Context) -> None:
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
