"""Storing the outcome of an attempt that is settled later, where the ledger's server keeps results:
by the ledger, which refuses it once the attempt is no longer the current one; and that it is
retried, once the next attempt has begun.

A worker may be cut off with the command under way.  When that arrives its successor may have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from celery.backends.redis import RedisBackend
from kombu.utils.encoding import bytes_to_str

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.compat.backend import SUCCESS_BEGINS, StoringBackend, longest_text, under_class
from celery_reliable.context import RunningAttempt, is_forgotten
from celery_reliable.exceptions import LedgerForbidden
from celery_reliable.ledger import FOREVER, answers, server_of
from celery_reliable.model import StoredResult

__all__ = ["FencedBackend", "is_on_ledger_server", "store_fenced", "store_retry"]

#: The attempt that stores its outcome just now, its task, and whether that is a retry.
_storing: ContextVar[tuple[RunningAttempt, Any, bool] | None] = ContextVar(
    "celery_reliable_storing", default=None
)


class _SupersededError(Exception):
    """The outcome was not stored, as the attempt is not the current one."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state


def is_on_ledger_server(task: Any, backend: Any) -> bool:
    """Whether a task's results are on the ledger's server, in a way that its scripts know."""
    # A subclass may store in its own way.
    if type(backend) is not RedisBackend:
        return False
    server = server_of(backend.connparams)
    return server is not None and server == reliable_of(task.app).ledger.connector.server


def store_fenced(
    task: Any,
    backend: Any,
    attempt: RunningAttempt | None,
    store: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call *store*, by which Celery stores an attempt's outcome; return what it returns.

    If the ledger refuses the outcome, the attempt is fenced, and *store* is left there: it tells no
    chord and no chain.
    """
    if (
        attempt is None
        or attempt.is_closed
        or attempt.is_replaced
        or not is_on_ledger_server(task, backend)
    ):
        return store(*args, **kwargs)
    before = _storing.set((attempt, task, False))
    try:
        return store(*args, **kwargs)
    except _SupersededError as late:
        attempt.fence(task, late.state)
        return None
    finally:
        _storing.reset(before)


def store_retry(
    task: Any, backend: Any, attempt: RunningAttempt | None, *args: Any, **kwargs: Any
) -> Any:
    """Let Celery store that a task is retried, unless its next attempt was quicker."""
    if attempt is None or not is_on_ledger_server(task, backend):
        return backend.mark_as_retry(*args, **kwargs)
    before = _storing.set((attempt, task, True))
    try:
        return under_class(backend, FencedBackend).mark_as_retry(*args, **kwargs)
    except _SupersededError:
        return None
    finally:
        _storing.reset(before)


class FencedBackend(StoringBackend):
    """Mixed into the class of a Redis backend: within `store_fenced` the ledger stores the
    attempt's own outcome.
    """

    def stores(self, key: Any, value: str | bytes) -> bool:
        """Let the ledger store an outcome; False if Celery has to."""
        backend: Any = self
        storing = _storing.get()
        if storing is None:
            return False
        attempt, task, is_retried = storing
        # Celery says so of what is too long.
        is_long = len(value) > longest_text(backend)
        if is_long or key != backend.get_key_for_task(attempt.claim.task_id):
            return False
        is_json = backend.serializer == "json"
        stored = StoredResult(
            bytes_to_str(key),
            value,
            SUCCESS_BEGINS if is_json else "",
            int(backend.expires or 0),
            int(backend.connparams.get("db") or 0),
        )
        ledger = reliable_of(task.app).ledger
        try:
            answer = ledger.store(
                attempt.claim,
                stored,
                is_retried=is_retried,
                patience_seconds=None if is_retried else FOREVER,
            )
        except LedgerForbidden as exc:
            events.settled_in_two_steps(task=task, task_id=attempt.claim.task_id, error=exc)
            return False
        if isinstance(answer, answers.Fenced):
            raise _SupersededError(answer.state)
        if isinstance(answer, answers.Gone):
            # What the server has lost has nobody else who would store its outcome.
            if is_retried or not is_forgotten(ledger, attempt):
                raise _SupersededError("gone")
            return False
        return isinstance(answer, answers.Stored)
