"""Storing an outcome: together with the settlement where the ledger's server keeps the results too,
and with patience where they are kept elsewhere and the result backend is away.

Celery gives up at once, by default.  The work is done by then: to do it again, and again, until its
losses are spent, would help nobody.

Celery stores a member's result, then counts the member in its chord.  The process of the member
that is counted last claims for some seconds to be the one that sends the body.  One that dies in
between leaves a chord which waits for ever: so the chord is told of a member whose process died
around its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery import Celery, states
from celery.app.task import Context
from celery.backends.base import BaseKeyValueStoreBackend

from celery_reliable.app import reliable_of
from celery_reliable.compat.backend import (
    CleaningBackend,
    MarkingBackend,
    chord_progress,
    counts_chords,
    run_errbacks,
)
from celery_reliable.compat.consumer import has_own_hook
from celery_reliable.context import RunningAttempt, is_current, put_off, running
from celery_reliable.exceptions import LedgerForbidden
from celery_reliable.ledger import FOREVER, answers
from celery_reliable.log import logger
from celery_reliable.model import DeadLetter, StoredResult
from celery_reliable.options import is_unique, keep_ms
from celery_reliable.redis_io import refuses_writes
from celery_reliable.results.fenced import (
    MARK,
    FencedBackend,
    SupersededError,
    as_stored,
    is_on_ledger_server,
    mark,
    store_state,
    stored_by_ledger,
    under_class,
)

__all__ = [
    "PatientBackend",
    "fail_again",
    "fail_as_buried",
    "marks",
    "tell_chord",
    "tell_chord_patiently",
]

#: What the drivers of databases raise when they have lost the server (PEP 249).  Kombu calls so
#: what a broker does not take, and with it this package what is not published.
_LOST_DATABASE = frozenset({"InterfaceError", "OperationalError"})

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0

#: The attribute of a request that names whom the result is of, if that is not the running attempt.
_STORED_BY = "stored_by"


def _may_pass(backend: Any, exc: BaseException | None) -> bool:
    """Whether an error of storing passes by itself."""
    if exc is None:
        return False
    names = {cls.__name__ for cls in type(exc).__mro__}
    return (
        # First: some backends mend their connection when they are asked.
        backend.exception_safe_to_retry(exc)
        or refuses_writes(exc)
        or isinstance(exc, OSError)
        or bool(names & _LOST_DATABASE)
        # Celery's own retries end in an error of Celery's, with the driver's as its cause.
        or _may_pass(backend, exc.__cause__)
    )


#: A claim to send a chord's body lasts for a few attempts to connect to the broker.
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.5


def tell_chord(backend: Any, request: Context, state: str, result: Any) -> bool:
    """Count a member in its chord; return whether the chord needs nothing more of it.

    Celery counts each member once, so this may be repeated.  While it is False, all members are
    counted and the body is not sent: the process that claimed to send it is about to, or it is dead
    and its claim runs out.  Raises what the backend's driver raises.
    """
    # In other backends members do not tell their chord, or may not tell it twice.
    if not request.chord or not request.group or not counts_chords(backend):
        return True
    body_id = (request.chord.get("options") or {}).get("task_id")
    if body_id and backend.get_state(body_id) in states.READY_STATES:
        # The body was sent; only the chord's counts were not removed after it.
        return True
    backend.on_chord_part_return(request, state, result)
    progress = chord_progress(backend, request.group)
    return progress is None or progress[0] < progress[1]


def tell_chord_patiently(backend: Any, request: dict[str, Any], state: str, result: Any) -> None:
    """`tell_chord` until the chord needs nothing more; what goes wrong and does not pass is only
    logged.

    For the process in which Celery has just told the same, and whose chord an earlier attempt, or a
    call whose reply was lost, may have left half told: this is not worth doing the work again.
    """
    context = Context(request, called_directly=False)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            if tell_chord(backend, context, state, result):
                return
        except Exception as exc:
            if not _may_pass(backend, exc):
                logger.error("chord_given_up id=%s error=%s", context.id, exc)
                return
            deadline = time.monotonic() + _PATIENCE_SECONDS
        time.sleep(_POLL_SECONDS)
    error = TimeoutError(f"not within {_PATIENCE_SECONDS:g} seconds")
    logger.error("chord_given_up id=%s error=%s", context.id, error)


class _Marking(MarkingBackend):
    """Mixed into a backend's class: puts the running attempt's name into its own task's result."""

    def more_fields(self, request: Any) -> dict[str, Any]:
        stored_by = getattr(request, _STORED_BY, "")
        if stored_by:
            return {MARK: stored_by}
        attempt = running.get()
        if attempt is None or getattr(request, "id", None) != attempt.claim.task_id:
            return {}
        return {MARK: mark(attempt.stamp.epoch, attempt.claim.attempt, attempt.claim.token)}


class _MarkingAndCleaning(CleaningBackend, FencedBackend, _Marking):
    """The same for a Redis, which counts chords, and may be the ledger's."""


def marks(backend: Any) -> bool:
    """Whether what an attempt stores in *backend* can name it: where results are texts."""
    return isinstance(backend, BaseKeyValueStoreBackend)


def _marked(backend: Any) -> Any:
    """Return *backend* under a class of ours, with the same attributes."""
    if not marks(backend):
        return backend
    return under_class(backend, _MarkingAndCleaning if counts_chords(backend) else _Marking)


def fail_again(backend: Any, request: Any, error: Exception, traceback: Any, by: str) -> None:
    """Do all that Celery does with a failure once more, as the attempt would that *by* names
    (`results.mark`): it stored the failure, and may have died before the errbacks were called, and
    the rest of its chain was told.

    Raises what the backend's driver raises.
    """
    setattr(request, _STORED_BY, by)
    backend.mark_as_failure(request.id, error, traceback=traceback, request=request)


def fail_as_buried(
    app: Celery,
    backend: Any,
    letter: DeadLetter,
    request: Any,
    error: Exception,
    *,
    store_result: bool,
) -> bool:
    """Do all that Celery does with a failure, of a dead letter; False, and nothing is done, where
    the ledger knows that the letter has been replayed or discarded.

    May be repeated.  Raises what the backend's driver raises.
    """
    setattr(request, _STORED_BY, f"buried {letter.buried_ms}")

    is_patient = isinstance(backend, PatientBackend)
    used = backend if is_patient else _marked(backend)
    try:
        with stored_by_ledger(app, backend.wrapped if is_patient else backend, letter):
            used.mark_as_failure(request.id, error, request=request, store_result=store_result)
    except SupersededError:
        return False
    return True


class PatientBackend:
    """A task's result backend, which in an attempt stores its outcome as soon as it can be stored.

    It goes on for as long as the attempt is the current one, and stores nothing after that.  Errors
    that will not pass, such as a result that cannot be serialized, are raised as always.
    """

    def __init__(self, task: Any, backend: Any) -> None:
        self._task = task
        self.wrapped = backend

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.wrapped, name)

    def __reduce__(self) -> Any:
        # A result that is passed on carries its backend.
        return self.wrapped.__reduce__()

    def mark_as_done(
        self,
        task_id: str,
        result: Any,
        request: Any = None,
        store_result: bool = True,
        state: str = states.SUCCESS,
    ) -> Any:
        """Store a success, and settle the attempt with it where that is one step."""
        attempt = running.get()
        if attempt is not None and store_result and self._is_plain(attempt, task_id, request):
            stored = self._as_stored(task_id, result, request, state)
            if stored is not None and self._settled_with(stored, attempt):
                return None
        if store_result:
            self._conclude(attempt, task_id, is_success=True)
        store = _marked(self.wrapped).mark_as_done
        return self._store(store, task_id, result, request, store_result, state=state)

    def _is_plain(self, attempt: RunningAttempt, task_id: str, request: Any) -> bool:
        """Whether the attempt's end is to store this result, and nothing besides."""
        return (
            not attempt.is_closed
            and not attempt.is_replaced
            # While hooks run, only the claim keeps its message from a second run.
            and not attempt.is_adopted
            and attempt.claim.task_id == task_id
            and request is not None
            # Hooks of the user's, which come later, may work on the object.
            and not (
                attempt.claim.object_key
                and any(has_own_hook(self._task, one) for one in ("on_success", "after_return"))
            )
            # The chord is told after that.  If the process dies before, the record is still needed.
            and not request.chord
            and not request.ignore_result
        )

    def _conclude(
        self, attempt: RunningAttempt | None, task_id: str, *, is_success: bool = False
    ) -> None:
        """Answer no later call of a unique task with this one.

        A caller that has seen the outcome and calls again wants a new task, object free or not.
        """
        if (
            attempt is not None
            and attempt.claim.object_key
            and not attempt.is_closed
            and attempt.claim.task_id == task_id
            and is_unique(self._task)
            # With ``once_for_seconds`` calls are to be answered with this success.
            and not (is_success and keep_ms(self._task))
        ):
            ledger = reliable_of(self._task.app).ledger
            ledger.touch(attempt.claim, is_concluding=True, patience_seconds=FOREVER)

    def _as_stored(
        self, task_id: str, result: Any, request: Any, state: str
    ) -> StoredResult | None:
        """Return the result as this backend keeps it; None where that is not on our server."""
        backend = self.wrapped
        # The script sees only in JSON how a task ended.
        if backend.serializer != "json" or not is_on_ledger_server(self._task.app, backend):
            return None
        encoded = backend.encode_result(result, state)
        meta = _marked(backend).result_meta(encoded, state, request)
        value = backend.encode({**meta, "task_id": task_id})
        return as_stored(backend, task_id, value, backend.expires)

    def _settled_with(self, stored: StoredResult, attempt: RunningAttempt) -> bool:
        """Store and settle in one step; False when nothing was done."""
        if put_off.takes(self._task, attempt.claim, states.SUCCESS, stored):
            attempt.is_closed = attempt.is_settled = True
            return True
        try:
            answer = reliable_of(self._task.app).ledger.settle(
                attempt.claim,
                stored,
                outcome=states.SUCCESS,
                keep_ms=keep_ms(self._task),
                patience_seconds=FOREVER,
            )
        except LedgerForbidden as exc:
            # The result is stored by itself now, and the task settled after it.
            name, task_id = self._task.name, attempt.claim.task_id
            logger.info("settled_in_two_steps name=%s id=%s error=%s", name, task_id, exc)
            return False
        if isinstance(answer, answers.Settled):
            attempt.is_closed = attempt.is_settled = True
            put_off.proven_db = stored.db
        elif isinstance(answer, answers.Fenced):
            attempt.fence(self._task, answer.state)
        return attempt.is_closed

    def mark_as_failure(
        self,
        task_id: str,
        exc: Any,
        traceback: Any = None,
        request: Any = None,
        store_result: bool = True,
        call_errbacks: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Store a failure, then call the errbacks: once, whatever they raise."""
        attempt = running.get()
        if store_result:
            self._conclude(attempt, task_id)
        self._store(
            _marked(self.wrapped).mark_as_failure,
            task_id,
            exc,
            traceback=traceback,
            request=request,
            store_result=store_result,
            call_errbacks=False,
            **kwargs,
        )
        is_ours = attempt is None or not attempt.is_closed
        if call_errbacks and is_ours and request is not None and request.errbacks:
            run_errbacks(self.wrapped, request, exc, traceback)

    def on_chord_part_return(self, *args: Any, **kwargs: Any) -> Any:
        """Count a member in its chord, and send the body after the last."""
        return _marked(self.wrapped).on_chord_part_return(*args, **kwargs)

    def store_result(self, *args: Any, **kwargs: Any) -> Any:
        """Store that the task has started, or what it tells of itself."""
        return store_state(self._task, self.wrapped, "store_result", *args, **kwargs)

    def mark_as_retry(self, task_id: str, *args: Any, **kwargs: Any) -> Any:
        """Store that the task is retried, if that is possible now.

        Its next attempt is published by then, and may have ended.  Celery takes an error of this
        for an end of the task: it would store a failure, and tell the chord and the errbacks.
        """
        try:
            return store_state(self._task, self.wrapped, "mark_as_retry", task_id, *args, **kwargs)
        except Exception as exc:
            if running.get() is None or not _may_pass(self.wrapped, exc):
                raise
            logger.warning("retry_not_stored name=%s id=%s error=%s", self._task.name, task_id, exc)
            return None

    def _store(self, store: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        attempt, pause = running.get(), _FIRST_PAUSE_SECONDS
        if attempt is None or attempt.is_closed:
            return store(*args, **kwargs)
        while True:
            try:
                if attempt.is_replaced:
                    return store(*args, **kwargs)
                with stored_by_ledger(self._task.app, self.wrapped, attempt):
                    return store(*args, **kwargs)
            except SupersededError as late:
                attempt.fence(self._task, str(late))
                return None
            except Exception as exc:
                if attempt.is_closed or not _may_pass(self.wrapped, exc):
                    raise
                about = self._task.name, attempt.claim.task_id, attempt.claim.attempt, exc
                logger.warning("outcome_waits name=%s id=%s attempt=%s error=%s", *about)
                attempt.is_stored_again = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            reliable = reliable_of(self._task.app)
            reliable.framework.drop_lost_connections()
            if not is_current(reliable.ledger, attempt):
                # Its successor's outcome is the one to store.
                attempt.fence(self._task)
                return None
